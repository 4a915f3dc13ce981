"""Many VMs, one after the other: how their launchers end. Only by name."""

import json
import os
import threading
import time
from collections import Counter

from kit import kube
from kit.registry import scenario
from kit.virt_handler import json_lines
from kit.vm import FINAL
from scenarios.shutdown import tiny_vm

CALLERS = 6


def verdict(vm, problem):
    """What is wrong about the end of a VM's launcher; None if nothing."""
    raw = [line["msg"] for line in json_lines(vm.log) if line.get("level") == "raw"]
    if problem or vm.record.exit_code != 0 or raw:
        return [vm.name, problem, vm.record.exit_code, raw[:5], vm.record.notes[-4:]]
    return None


def repeat(session, result, count, one):
    bad = []
    for index in range(count):
        problem = None
        try:
            vm = one(session, index)
        except TimeoutError as error:
            vm, problem = session.vms[-1], str(error)
        found = verdict(vm, problem)
        if found:
            bad.append(found)
        vm.discard()
    result.step(f"{count} launchers ended well", lambda: bad or "all")


@scenario(
    "15 VMs start and are deleted, with different grace periods",
    "every launcher ends with status 0",
    default=False,
)
def many_stops(session, result):
    def one(session, index):
        vm = session.vm(f"exit{index}", grace=index % 3)
        vm.running()
        if index % 3 == 2:
            vm.agent_connected()
        vm.delete()
        vm.gone(40)
        return vm

    repeat(session, result, int(os.environ.get("COUNT", "15")), one)


@scenario(
    "50 VMs are deleted whose guest obeys the power button at once, one after the other",
    "Succeeded each time, before the pod has ended",
    default=False,
)
def many_deletions(session, result):
    ends = []
    for index in range(int(os.environ.get("COUNT", "50"))):
        vm = tiny_vm(session, f"deletion{index}")
        end = PodWatch(vm.pod)
        log_mark = session.handler.log_size()
        if os.environ.get("CONFLICTS"):
            kube.interfere(vm.namespace, vm.name, "Succeeded")
        vm.delete()
        vm.gone(60)
        end.join(60)
        ends.append(deletion(vm, end.at, session.handler.log_lines(log_mark)))
        print(f"    {ends[-1]}", flush=True)
        vm.discard()
    result.step("phases", lambda: dict(Counter(end["phase"] for end in ends)))
    result.step("each of them", lambda: ends, measured=True)


class PodWatch(threading.Thread):
    """Sees the pod's end at once. `at`: when."""

    def __init__(self, pod):
        super().__init__(daemon=True)
        self.pod, self.at = pod, None
        self.start()

    def run(self):
        self.pod.container.process.wait()
        self.at = time.time()


def deletion(vm, pod_end, handler_log):
    """How the VM has ended; `margin`: by how many seconds the final phase was there before the pod had ended."""
    final_at, final = next((at, phase) for at, phase in vm.recorder.phases() if phase.split()[0] in FINAL)
    conflicts = [line for line in handler_log if "the object has been modified" in json.dumps(line)]
    return {
        "phase": final.split()[0],
        "margin": round(pod_end - vm.recorder.start - final_at, 2),
        "conflicts": len(conflicts),
    }


@scenario("12 VMs are deleted while calls come in", "every launcher ends with status 0", default=False)
def stops_under_calls(session, result):
    def one(session, index):
        vm, stop = session.vm(f"calls{index}", grace=index % 2), threading.Event()

        def calls():
            while not stop.is_set():
                try:
                    vm.put("unpause")
                except OSError:  # virt-handler closes the connection where there is no launcher
                    time.sleep(0.01)

        vm.running()
        for _ in range(CALLERS):
            threading.Thread(target=calls, daemon=True).start()
        try:
            vm.delete()
            vm.gone(40)
        finally:
            stop.set()
        return vm

    repeat(session, result, int(os.environ.get("COUNT", "12")), one)
