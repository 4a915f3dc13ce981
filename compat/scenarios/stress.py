"""Many VMs, one after the other: how their launchers end. Only by name."""

import os
import threading
import time

from kit.registry import scenario
from kit.virt_handler import json_lines
from kit.vm import VM

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
        vm = VM(session, f"exit{index}", grace=index % 3)
        vm.running()
        if index % 3 == 2:
            vm.agent_connected()
        vm.delete()
        vm.gone(40)
        return vm

    repeat(session, result, int(os.environ.get("COUNT", "15")), one)


@scenario("12 VMs are deleted while calls come in", "every launcher ends with status 0", default=False)
def stops_under_calls(session, result):
    def one(session, index):
        vm, stop = VM(session, f"calls{index}", grace=index % 2), threading.Event()

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
