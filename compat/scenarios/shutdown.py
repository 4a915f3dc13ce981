"""Ways in which a VM ends as intended."""

import time

from kit import kube, tiny_guest
from kit.registry import scenario
from kit.steps import boot, end_after_final_phase, end_by_deletion


def delete_timed(result, vm):
    start = time.time()
    end_by_deletion(result, vm)
    result.record("seconds_to_gone", round(time.time() - start, 1))


@scenario("the VMI is deleted; the guest obeys the power button", "Succeeded, then gone")
def shutdown(session, result):
    vm = session.vm("shutdown")
    boot(result, vm)
    end_by_deletion(result, vm)
    return vm


@scenario("the guest powers itself off", "Succeeded; the pod ends with status 0")
def poweroff(session, result):
    vm = session.vm("poweroff")
    boot(result, vm)
    vm.console().send("poweroff\n")
    result.step("final phase", vm.final_phase, 40)
    end_after_final_phase(result, vm)
    return vm


@scenario(
    "the VMI is deleted; the guest ignores the power button, and has an agent",
    "the guest agent shuts the guest down: Succeeded within the grace period of 10 s",
)
def shutdown_ignored(session, result):
    vm = session.vm("shutdown-ignored", grace=10)
    boot(result, vm)
    result.step("guest ignores the button", vm.shell, "touch /run/ignore-power")
    delete_timed(result, vm)
    while vm.console().receive(1):  # what it printed up to its end
        pass
    result.record("button", vm.console().text.decode(errors="replace").count("power button ignored"))
    return vm


@scenario("the same in a guest without an agent", "killed at the end of the grace period: Failed")
def shutdown_ignored_without_agent(session, result):
    vm = session.vm("without-agent", grace=10)
    boot(result, vm)
    result.step(
        "guest ignores the button, no agent",
        vm.shell,
        "touch /run/ignore-power /run/no-agent; killall qemu-ga; sleep 1",
    )
    time.sleep(1)
    delete_timed(result, vm)
    return vm


@scenario("the VMI is deleted with a grace period of 0", "killed at once")
def grace_period_zero(session, result):
    vm = session.vm("grace-zero", grace=0)
    boot(result, vm)
    delete_timed(result, vm)
    return vm


@scenario(
    "the VMI is deleted while the guest is still in its firmware",
    "killed at the end of its grace period of 10 s",
)
def deleted_during_boot(session, result):
    vm = session.vm("deleted-early", grace=10)
    result.step("phase Running", vm.running, required=True)
    delete_timed(result, vm)
    return vm


@scenario("the VMI is deleted while its guest is paused", "killed at the end of its grace period of 10 s")
def paused_shutdown(session, result):
    def change(vmi):
        vmi["spec"]["startStrategy"] = "Paused"

    vm = session.vm("paused-shutdown", grace=10, change=change)
    result.step("phase Running", vm.running, required=True)
    result.step("condition Paused", lambda: vm.has_condition("Paused", since=0) > 0)
    delete_timed(result, vm)
    return vm


@scenario("the pod is deleted, and not the VMI", "virt-handler shuts the guest down; Succeeded")
def pod_deleted(session, result):
    vm = session.vm("pod-deleted")
    boot(result, vm)
    session.controller.terminate(vm.record)
    result.step("final phase", vm.final_phase)
    end_after_final_phase(result, vm)
    return vm


def tiny_vm(session, name):
    """A VM with the tiny guest, which is up."""
    vm = session.vm(name, disk=tiny_guest.write("/run/tiny-guest.img"))
    vm.running()
    if not vm.console().expect(tiny_guest.UP, 60):
        raise TimeoutError(f"{tiny_guest.UP!r} did not come")
    return vm


@scenario(
    "the VMI is changed by another in the moment in which virt-handler writes that it has succeeded",
    "virt-handler hears again how the guest ended: Succeeded in most runs, Failed where it retries sooner",
)
def conflict_at_the_end(session, result):
    vm = tiny_vm(session, "conflict-at-the-end")
    kube.interfere(vm.namespace, vm.name, "Succeeded")
    vm.delete()
    result.step("gone", vm.gone)
    return vm
