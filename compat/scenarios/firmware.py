"""VMs with firmware other than a BIOS."""

from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.vm import VM


def uefi(vmi, secure_boot=False):
    vmi["spec"]["domain"]["firmware"]["bootloader"] = {"efi": {"secureBoot": secure_boot}}
    vmi["spec"]["domain"]["memory"]["guest"] = "512Mi"
    vmi["spec"]["domain"]["resources"]["requests"]["memory"] = "512Mi"


@scenario("UEFI", "Running, AgentConnected")
def efi(session, result):
    vm = VM(session, "efi", change=uefi)
    boot(result, vm, agent_timeout=90)
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm
