"""What the guest's cloud-init finds."""

from kit.objects import add_disk
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from scenarios.guest_agent import KEY

USER_DATA = "#cloud-config\nhostname: x\n"
SECRETS = {"keys": {"first": KEY.format("A", "first"), "second": KEY.format("B", "second")}}


def with_keys(method, volume):
    """A cloud-init disk with a public key of a Secret by that method."""

    def change(vmi):
        source = {"secret": {"secretName": "keys"}}
        key = {"source": source, "propagationMethod": {method: {}}}
        vmi["spec"]["accessCredentials"] = [{"sshPublicKey": key}]
        add_disk(vmi, "seed", {volume: {"userData": USER_DATA}})

    return change


def read_by_the_guest(session, result, name, change):
    vm = session.vm(name, change=change, secrets=SECRETS)
    boot(result, vm)
    result.step("guest: user-data", vm.shell, "seed user-data")
    result.step("guest: keys", vm.shell, "seed meta-data | grep -o '[a-z]*@example' | sort")
    end_by_deletion(result, vm)
    return vm


@scenario(
    "cloud-init's data and SSH keys of a Secret on a disk of type NoCloud",
    "the guest reads the user-data, and the keys in the meta-data",
)
def no_cloud(session, result):
    return read_by_the_guest(session, result, "no-cloud", with_keys("noCloud", "cloudInitNoCloud"))


@scenario(
    "cloud-init's data and SSH keys of a Secret on a disk of type ConfigDrive",
    "the guest reads the user-data, and the keys in the meta-data",
)
def config_drive(session, result):
    return read_by_the_guest(
        session, result, "config-drive", with_keys("configDrive", "cloudInitConfigDrive")
    )
