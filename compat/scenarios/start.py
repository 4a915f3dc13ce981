"""A VM starts, with disks of several kinds, its console and its display."""

import time

from kit import objects, rest
from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.websocket import WebSocket

GENERATED = ("seed", "cd", "sec")  # volumes whose images the launcher makes


def many_disks(vmi):
    vmi["spec"]["domain"]["devices"]["rng"] = {}
    objects.add_disk(vmi, "seed", {"cloudInitNoCloud": {"userData": "#cloud-config\nhostname: x\n"}})
    objects.add_disk(vmi, "scratch", {"emptyDisk": {"capacity": "64Mi"}}, bus="scsi", serial="ScRatch-01")
    objects.add_disk(vmi, "cd", {"configMap": {"name": "cd"}}, bus="sata", kind="cdrom")
    objects.add_disk(vmi, "sec", {"secret": {"secretName": "sec"}})


@scenario(
    "a VM with five disks and CD-ROMs starts; console, VNC",
    "Running, AgentConnected, volume sizes, console, VNC and a picture; memory of the pod's programs",
)
def start(session, result):
    vm = session.vm("start", change=many_disks)
    result.step("phase Running", vm.running, required=True)
    result.step("guest up on the console", vm.guest_up)
    result.step("AgentConnected", vm.agent_connected)
    result.step("ISO sizes", iso_sizes, vm)
    time.sleep(3)
    result.step("guest: disks", vm.shell, "disks")
    result.step("guest: seed", vm.shell, "seed")
    result.step("guest: machine", vm.shell, "machine")
    result.step("a second console takes over", second_console, vm)
    result.step("VNC handshake", vnc_handshake, vm)
    result.step("VNC screenshot", screenshot, vm)
    result.step(
        "memory, PSS in KiB",
        lambda: {name: pss(pid) for pid, name, _, state in vm.pod.container.tree() if state != "Z"},
        measured=True,
    )
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


def iso_sizes(vm):
    def all_known(vmi):
        return all(v.get("size") for v in vmi["status"]["volumeStatus"] if v["name"] in GENERATED)

    vm.wait("the sizes of all ISO images", all_known, 20, since=0)
    return {v["name"]: v.get("size") for v in vm.status["volumeStatus"]}


def second_console(vm):
    """virt-handler closes the first console when a second one connects."""
    old = vm.console()
    new = WebSocket(rest.vmi_path(vm.namespace, vm.name, "console"), vm.address)
    new.send("echo sec''ond\n")
    works = new.expect("second", 10)
    for _ in range(20):
        if old.closed or not old.receive(0.2):
            break
    vm.socket = new
    return {"new works": works, "old": old.closed}


def vnc_handshake(vm):
    socket = WebSocket(rest.vmi_path(vm.namespace, vm.name, "vnc"), vm.address)
    greeted = socket.expect("RFB 003.008", 10)
    socket.send("RFB 003.008\n")
    socket.text = b""
    time.sleep(0.5)
    socket.receive(1)
    security_types = list(socket.text[:4])
    socket.close()
    return [greeted, security_types]


def screenshot(vm):
    """Status code, whether it is more than a header, and the first bytes, which say the format."""
    code, data = rest.request(
        "GET", rest.vmi_path(vm.namespace, vm.name, "vnc/screenshot"), address=vm.address
    )
    return [code, len(data) > 1000, data[:4].hex()]


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))


@scenario(
    "startStrategy Paused; then unpaused", "Running with condition Paused; then without, and AgentConnected"
)
def paused_start(session, result):
    def change(vmi):
        vmi["spec"]["startStrategy"] = "Paused"

    vm = session.vm("paused-start", change=change)
    result.step("phase Running", vm.running, required=True)
    result.step(
        "condition Paused", lambda: vm.has_condition("Paused", since=0) and vm.condition("Paused")["reason"]
    )
    result.record("running_status", status(vm.latest))
    mark = vm.recorder.mark()
    result.step("unpause", vm.put, "unpause")
    result.step("Paused is gone", vm.lacks_condition, "Paused", since=mark)
    result.step("AgentConnected", vm.agent_connected)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a VMI is deleted, and another one of the same name is created at once", "the second one is Running"
)
def recreate(session, result):
    first = session.vm("recreate", grace=5)
    boot(result, first)
    end_by_deletion(result, first)
    first.recorder.stopped = True
    second = session.vm("recreate", grace=5)

    def runs(vmi):
        return (
            vmi["status"].get("phase") == "Running"
            and vmi["metadata"]["uid"] == second.vmi["metadata"]["uid"]
        )

    result.step("the second: Running", second.wait, "Running", runs, 60, since=0)
    second.delete()
    result.step("the second: gone", second.gone)
    return second


@scenario("a VMI that runs as root (feature gate Root)", "Running, AgentConnected; QEMU's user is qemu")
def root_mode(session, result):
    def change(vmi):
        vmi["status"]["runtimeUser"] = 0

    vm = session.vm("root-mode", change=change, root=True)
    boot(result, vm)
    result.step("QEMU's user", lambda: sorted({owner(pid) for pid in vm.pod.guests()}))
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


def owner(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Uid:"))
