"""What virt-handler learns from the guest agent, and asks of it."""

from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.vm import VM


@scenario("the guest's information is asked for by REST", "guestOSInfo in the status; guestosinfo, userlist, filesystemlist")
def guest_information(session, result):
    vm = VM(session, "guest-information")
    boot(result, vm)

    def os_info():
        vm.wait("guestOSInfo", lambda vmi: vmi["status"].get("guestOSInfo", {}).get("name"), 20, since=0)
        return vm.status["guestOSInfo"]
    result.step("guestOSInfo", os_info)
    result.step("REST guestosinfo", vm.get, "guestosinfo")
    result.step("REST userlist", vm.get, "userlist")
    result.step("REST filesystemlist", vm.get, "filesystemlist")
    end_by_deletion(result, vm)
    return vm
