"""What virt-handler and the kubelet learn from the guest agent, and ask of it."""

import time

from kit.normalize import without_times
from kit.registry import scenario
from kit.steps import boot, end_by_deletion


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
