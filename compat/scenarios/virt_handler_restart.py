"""virt-handler goes away and comes back while the guest runs on."""

import json
import signal
import socket
import time

from kit.normalize import plain
from kit.registry import scenario
from kit.steps import boot, end_by_deletion


@scenario(
    "virt-handler ends on SIGTERM, then on SIGKILL, and comes back; the guest powers off while it is away",
    "each time pause and unpause work again, and nothing is written to the VMI without a change; Succeeded at the end",
)
def virt_handler_restart(session, result):
    vm = session.vm("handler-restart")
    boot(result, vm)
    qemu = vm.pod.guests()
    written = []
    for how in (signal.SIGTERM, signal.SIGKILL):
        result.step(f"virt-handler {how.name}", session.handler.stop, how)
        time.sleep(2)
        before = len(vm.recorder.versions)
        result.step("virt-handler is back", lambda: bool(session.handler.start()))
        time.sleep(4)
        written.append(changes(vm, before))
        mark = vm.recorder.mark()
        result.step("pause", vm.put, "pause")
        result.step("condition Paused", vm.has_condition, "Paused", since=mark)
        mark = vm.recorder.mark()
        result.step("unpause", vm.put, "unpause")
        result.step("Paused is gone", vm.lacks_condition, "Paused", since=mark)
    result.record("versions_written_after_restart", written)
    result.step("virt-handler SIGKILL", session.handler.stop, signal.SIGKILL)
    result.step("guest: power off while virt-handler is away", power_off_by_socket, vm)
    time.sleep(3)
    result.record("launcher_alive_without_handler", vm.pod.pids("virt-launcher") != [])
    result.step("virt-handler is back", lambda: bool(session.handler.start()))
    result.step("final phase", vm.final_phase)
    result.record("same_qemu", len(qemu))
    end_by_deletion(result, vm)
    return vm


def power_off_by_socket(vm):
    """Through the console's socket itself: virt-handler is away."""
    path = vm.pod.path(f"/run/kubevirt-private/{vm.vmi['metadata']['uid']}/virt-serial0")
    with socket.socket(socket.AF_UNIX) as console:
        console.settimeout(5)
        console.connect(path)
        console.sendall(b"\npoweroff\n")
        time.sleep(1)
    return True


def changes(vm, first):
    """What each version of the VMI from that one on has changed."""
    versions = [obj for _, _, obj in vm.recorder.versions]
    return [plain(json.dumps(difference(versions[i - 1], versions[i]))) for i in range(first, len(versions))]


def difference(old, new, path=""):
    out = {}
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            if path or key != "metadata":
                out.update(difference(old.get(key), new.get(key), f"{path}/{key}"))
    elif old != new:
        out[path] = [old, new]
    return out
