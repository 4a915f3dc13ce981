"""What a user does to a running VM by virt-handler's REST server."""

import time

from kit import settings
from kit.normalize import status, without_times
from kit.registry import scenario
from kit.steps import boot, end_by_deletion


@scenario(
    "pause, unpause, freeze, unfreeze, freeze with a timeout, soft reboot, reset",
    "each answer 202; conditions Paused and AgentConnected and fsFreezeStatus follow; the guest boots again",
)
def lifecycle(session, result):
    vm = session.vm("lifecycle")
    boot(result, vm)
    result.step("guest up", lambda: vm.shell("true") is not None)
    pause(result, vm)
    freeze(result, vm)
    result.step("soft reboot", rebooted, vm, "softreboot")
    time.sleep(2)
    result.step("reset", rebooted, vm, "reset")
    time.sleep(4)
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


def pause(result, vm):
    mark = vm.recorder.mark()
    result.step("pause", vm.put, "pause")
    result.step(
        "condition Paused",
        lambda: vm.has_condition("Paused", since=mark) and without_times(vm.condition("Paused")),
    )
    result.step("pause again", vm.put, "pause")
    mark = vm.recorder.mark()
    result.step("unpause", vm.put, "unpause")
    result.step("Paused is gone", vm.lacks_condition, "Paused", since=mark)
    result.step("unpause again", vm.put, "unpause")
    result.step("guest answers", vm.shell, "echo hello")


def freeze(result, vm):
    def frozen(timeout=20, since=None):
        return vm.wait("fsFreezeStatus", lambda vmi: vmi["status"].get("fsFreezeStatus"), timeout, since)

    def thawed(timeout=20, since=None):
        return vm.wait(
            "no fsFreezeStatus", lambda vmi: not vmi["status"].get("fsFreezeStatus"), timeout, since
        )

    mark = vm.recorder.mark()
    result.step("freeze", vm.put, "freeze", {"unfreezeTimeout": "0s"})
    result.step("fsFreezeStatus", lambda: frozen(since=mark) and vm.status.get("fsFreezeStatus"))
    result.step("freeze again", vm.put, "freeze", {"unfreezeTimeout": "0s"})
    mark = vm.recorder.mark()
    result.step("unfreeze", vm.put, "unfreeze")
    result.step("thawed", thawed, since=mark)
    mark = vm.recorder.mark()
    result.step("freeze for 5 s", vm.put, "freeze", {"unfreezeTimeout": "5s"})
    result.step("frozen", frozen, since=mark)
    result.step("thawed by itself", thawed, 30)


def rebooted(vm, how):
    console = vm.console()
    console.text = b""
    out = {"answer": vm.put(how), "up again": console.expect(settings.GUEST_UP, 60)}
    try:
        vm.has_condition("AgentConnected", timeout=40)
        out["agent"] = True
    except TimeoutError:
        out["agent"] = False
    return out


def end_agent(vm):
    vm.shell("touch /run/no-agent; killall qemu-ga; sleep 1")
    vm.lacks_condition("AgentConnected", 20)


@scenario("a soft reboot of a guest without an agent", "answer 202; the guest boots again, by ACPI")
def soft_reboot_by_acpi(session, result):
    vm = session.vm("reboot-by-acpi")
    boot(result, vm)
    end_agent(vm)
    result.step("soft reboot", rebooted, vm, "softreboot")
    end_by_deletion(result, vm)
    return vm


@scenario("the same, and the VM has no ACPI", "the answer says what is missing; the guest runs on")
def soft_reboot_refused(session, result):
    def change(vmi):
        vmi["spec"]["domain"]["features"]["acpi"] = {"enabled": False}

    vm = session.vm("reboot-refused", change=change, grace=5)
    boot(result, vm)
    end_agent(vm)
    result.step("soft reboot", vm.put, "softreboot")
    result.step("guest answers", vm.shell, "echo hello")
    end_by_deletion(result, vm)
    return vm
