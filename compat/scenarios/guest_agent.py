"""What virt-handler and the kubelet learn from the guest agent, and ask of it."""

import time

from kit import objects
from kit.normalize import without_times
from kit.pod_network import PodNetwork
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from scenarios.network import TAP_PLUGIN, guest_addresses, interface

# In place of the guest's own agent, which the first comment keeps from starting: knows what a
# launcher polls, and answers as many questions for the interfaces with an error as /run/failures
# says.
FAILING_AGENT = r"""#!/bin/sh
# guest.no-agent
exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0
while :; do
    # There is nothing to read until libvirt has connected.
    read -r request <&3 || { usleep 100000; continue; }
    answer= error=CommandNotFound
    case $request in
    *guest-sync*) answer=${request##*:} answer=${answer%%\}*} ;;
    *guest-info*) answer='{"version": "1", "supported_commands": []}' ;;
    *guest-fsfreeze-status*) answer='"thawed"' ;;
    *guest-get-fsinfo* | *guest-get-users*) answer='[]' ;;
    *guest-get-host-name*) answer='{"host-name": "guest"}' ;;
    *guest-get-osinfo*) answer='{"id": "guest"}' ;;
    *guest-get-timezone*) answer='{"offset": 0}' ;;
    *guest-network-get-interfaces*)
        left=$(cat /run/failures)
        if [ "$left" -gt 0 ]; then
            echo $((left - 1)) >/run/failures
            error=GenericError
        else
            mac=$(cat /sys/class/net/eth0/address)
            addresses=$(ip -4 addr show eth0 |
                sed -n 's/.*inet \([0-9.]*\).*/{"ip-address": "\1", "ip-address-type": "ipv4", "prefix": 24},/p')
            answer='[{"name": "eth0", "hardware-address": "'$mac'", "ip-addresses": ['${addresses%,}']}]'
        fi
        ;;
    esac
    [ "$answer" ] && answer="{\"return\": $answer}" || answer="{\"error\": {\"class\": \"$error\", \"desc\": \"\"}}"
    echo $answer >&3 # in one line
done
"""
ADDRESSES = ["192.0.2.6", "192.0.2.7"]


@scenario(
    "the guest's information is asked for by REST",
    "guestOSInfo in the status; guestosinfo, userlist, filesystemlist",
)
def guest_information(session, result):
    vm = session.vm("guest-information")
    boot(result, vm)

    def os_info():
        vm.wait("guestOSInfo", lambda vmi: vmi["status"].get("guestOSInfo", {}).get("name"), 20, since=0)
        return vm.status["guestOSInfo"]

    result.step("guestOSInfo", os_info)
    result.step("the agent's version is supported", vm.lacks_condition, "AgentVersionNotSupported", 30)
    time.sleep(3)  # the agent's slower commands
    result.step("REST guestosinfo", vm.get, "guestosinfo")
    result.step("REST userlist", vm.get, "userlist")
    result.step("REST filesystemlist", vm.get, "filesystemlist")
    end_by_deletion(result, vm)
    return vm


@scenario(
    "the guest gets another address, and its agent answers twice with an error before it tells",
    "both addresses in the status",
)
def agent_errors(session, result):
    def change(vmi):
        # virt-handler keeps what it has said of the pod network's interface.
        interface(vmi, "blue", TAP_PLUGIN, {"multus": {"networkName": "default/blue"}})
        objects.add_disk(vmi, "seed", {"cloudInitNoCloud": {"userData": FAILING_AGENT}})

    with PodNetwork("agenterrors", host=12) as network:
        network.plug_tap("blue", "net-blue", mac="02:00:00:00:02:03")
        vm = session.vm("agent-errors", change=change, network=network.name)
        result.step("phase Running", vm.running, required=True)
        result.step("guest up on the console", vm.guest_up)
        vm.shell(f"ip addr add {ADDRESSES[0]}/24 dev eth0; echo 0 >/run/failures")
        vm.shell("seed user-data >/run/failing-agent; (sh /run/failing-agent &)")
        result.step("AgentConnected", vm.agent_connected)
        result.step("interface with addresses", guest_addresses, vm)
        vm.shell(f"ip addr add {ADDRESSES[1]}/24 dev eth0; echo 2 >/run/failures")
        # Launchers ask again after 10, 20, 40 and 80 s.
        result.step("interface with both addresses", both_addresses, vm, 160)
        result.step("failures to come", vm.shell, "cat /run/failures")
        end_by_deletion(result, vm)
        return vm


def both_addresses(vm, timeout):
    vm.wait(
        "both addresses",
        lambda vmi: any(each.get("ipAddresses") == ADDRESSES for each in vmi["status"].get("interfaces", [])),
        timeout,
    )
    return vm.status["interfaces"]


@scenario(
    "the kubelet's probes: virt-probe with a command and with a ping, also of a paused guest and one without an agent",
    "the command's exit status and output; 0 or not for a ping; an event for a ping that fails",
)
def probes(session, result):
    vm = session.vm("probes")
    boot(result, vm)
    result.step("command that succeeds", probe, vm, "--command", "/bin/echo", "--", "two words", "another")
    result.step(
        "arguments with quotes", probe, vm, "--command", "/bin/echo", "--", 'double " and \\ backslash'
    )
    result.step("command that fails", probe, vm, "--command", "/bin/sh", "--", "-c", "exit 7")
    result.step("command that does not exist", probe, vm, "--command", "/no/such/program")
    result.step("command that takes too long", probe, vm, "--command", "/bin/sleep", "--", "20")
    result.step("ping", probe, vm, "--guestAgentPing")
    result.step("pause", vm.put, "pause")
    vm.has_condition("Paused")
    result.step("ping of a paused guest", probe, vm, "--guestAgentPing")
    result.step("unpause", vm.put, "unpause")
    vm.shell("touch /run/no-agent; killall qemu-ga; sleep 1")
    result.step("ping without an agent", probe, vm, "--guestAgentPing")
    result.step("command without an agent", probe, vm, "--command", "/bin/true")
    time.sleep(1)  # the event
    end_by_deletion(result, vm)
    return vm


def probe(vm, *arguments):
    """As virt-controller writes it into the pod: exit status, and the output that is not the log."""
    done = vm.pod.container.run(
        ["virt-probe", "--domainName", f"{vm.namespace}_{vm.name}", "--timeoutSeconds", "5", *arguments]
    )
    printed = [
        line for line in done["output"].splitlines() if not line.startswith("{") and "goroutine" not in line
    ]
    return {
        "succeeded": done["exit"] == 0,
        "exit": done["exit"] if "--command" in arguments else None,
        "output": printed[0] if printed and done["exit"] != 2 else "",
    }


@scenario(
    "virt-freezer in the pod, as backup tools call it; also without an agent",
    "exit status 0; fsFreezeStatus frozen, then none",
)
def freezer(session, result):
    vm = session.vm("freezer")
    boot(result, vm)
    mark = vm.recorder.mark()
    result.step("freeze", freeze, vm, "--freeze")
    result.step(
        "fsFreezeStatus",
        lambda: (
            vm.wait("frozen", lambda vmi: vmi["status"].get("fsFreezeStatus"), 20, mark)
            and vm.status["fsFreezeStatus"]
        ),
    )
    mark = vm.recorder.mark()
    result.step("unfreeze", freeze, vm, "--unfreeze")
    result.step("thawed", vm.wait, "thawed", lambda vmi: not vmi["status"].get("fsFreezeStatus"), 20, mark)
    vm.shell("touch /run/no-agent; killall qemu-ga; sleep 1")
    vm.lacks_condition("AgentConnected", 20)
    result.step("freeze without an agent", freeze, vm, "--freeze")
    end_by_deletion(result, vm)
    return vm


def freeze(vm, action):
    done = vm.pod.container.run(
        ["/usr/bin/virt-freezer", action, "--name", vm.name, "--namespace", vm.namespace], timeout=70
    )
    return done["exit"]


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}000000000000000000000000000000000000000 {}@example\n"


@scenario(
    "access credentials: SSH keys and a password from Secrets by the guest agent; a Secret changes",
    "condition AccessCredentialsSynchronized; the keys and the password in the guest, the new key after the change",
)
def access_credentials(session, result):
    def change(vmi):
        agent = {"qemuGuestAgent": {}}
        vmi["spec"]["accessCredentials"] = [
            {
                "sshPublicKey": {
                    "source": {"secret": {"secretName": "keys"}},
                    "propagationMethod": {"qemuGuestAgent": {"users": ["root", "guest"]}},
                }
            },
            {"userPassword": {"source": {"secret": {"secretName": "passwords"}}, "propagationMethod": agent}},
        ]

    secrets = {
        "keys": {"first": KEY.format("A", "first"), "second": KEY.format("B", "second")},
        "passwords": {"guest": "s3cret"},
    }
    vm = session.vm("access-credentials", change=change, secrets=secrets)
    result.step("phase Running", vm.running, required=True)
    result.step("guest up on the console", vm.guest_up)
    vm.shell("mkdir -p /root /home/guest; chown 1000:1000 /home/guest; cp /etc/shadow /run/shadow.before")
    result.step("AgentConnected", vm.agent_connected)
    result.step(
        "AccessCredentialsSynchronized",
        lambda: (
            vm.wait("True", lambda vmi: (found := credentials(vmi)) and found["status"] == "True", 60, 0)
            and without_times(vm.condition("AccessCredentialsSynchronized"))
        ),
    )
    for user, home in (("root", "/root"), ("guest", "/home/guest")):
        result.step(
            f"keys of {user}",
            vm.shell,
            f"cut -d' ' -f3 {home}/.ssh/authorized_keys | sort; "
            f"stat -c '%a %u %g' {home}/.ssh {home}/.ssh/authorized_keys",
        )
    result.step("password changed", vm.shell, "cmp -s /etc/shadow /run/shadow.before && echo no || echo yes")
    folder = f"{vm.pod.folder}/volumes/kubernetes.io~secret/keys-access-cred"
    with open(f"{folder}/third", "w") as f:
        f.write(KEY.format("C", "third"))
    result.step("the new key arrives", arrives, vm, "third@example")
    end_by_deletion(result, vm)
    return vm


def credentials(vmi):
    return next(
        (c for c in vmi["status"].get("conditions", []) if c["type"] == "AccessCredentialsSynchronized"), None
    )


def arrives(vm, text, timeout=60):
    deadline = time.time() + timeout
    while text not in vm.shell("cat /root/.ssh/authorized_keys"):
        if time.time() > deadline:
            raise TimeoutError(f"{text} is not among the keys after {timeout} s")
        time.sleep(1)
    return True
