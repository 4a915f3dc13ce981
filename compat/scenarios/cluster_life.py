"""In a cluster: what virt-controller, virt-api and the kubelet add to a VM's life."""

import time

from cluster.virtual_machine import Machine
from kit import kube
from kit.kube import phase
from kit.normalize import status, without_times
from kit.registry import CLUSTER, scenario
from kit.steps import boot, end_by_deletion

VMS_AT_ONCE = 10
LAUNCHERCTL = (("status",), ("timeline",), ("volumes",), ("guest", "info"), ("ping",), ("hooks",))


@scenario(
    "a VMI starts in a pod of virt-controller's and is deleted",
    "Running, AgentConnected, Ready; volumes, memory and machine in the status; the pod ends with 0",
    place=CLUSTER,
)
def pod_start(session, result):
    vm = session.vm("pod-start")
    boot(result, vm)
    result.step("Ready", vm.has_condition, "Ready", 30, 0)
    result.step("guest: machine", vm.shell, "machine")
    time.sleep(3)
    result.record("running_status", status(vm.latest))
    result.step("users of the pod's processes", users, vm)
    end_by_deletion(result, vm)
    result.step("pods are gone", vm.pod.until_gone)
    return vm


def users(vm):
    """Who runs the guest and the launcher; libvirt's daemon has several names."""
    listed = vm.pod.execute("ps", "-eo", "user:12,comm", "--no-headers")["output"]
    found = {tuple(line.split()) for line in listed.splitlines()}
    return sorted(f"{name} by {user}" for user, name in found if name.startswith(("virt-", "qemu")))


@scenario(
    "a VirtualMachine is started, restarted, stopped and deleted",
    "its printed status follows: Running, Stopped; another VMI after the restart",
    place=CLUSTER,
)
def machine_life(session, result):
    vm = session.vm("machine-life", create=False)
    with Machine(vm, "Manual") as machine:
        result.step("start", machine.put, "start")
        boot(result, vm)
        result.step("status Running", machine.shown, "Running")
        first = vm.latest["metadata"]["uid"]
        result.step("restart", machine.put, "restart")
        another = lambda vmi: vmi["metadata"]["uid"] != first and phase(vmi) == "Running"  # noqa: E731
        result.step("another VMI is Running", vm.wait, "another VMI", another, 180)
        result.step("stop", machine.put, "stop")
        result.step("status Stopped", machine.shown, "Stopped", 90)
        machine.end(result)
    return vm


@scenario(
    "a VirtualMachine with run strategy RerunOnFailure, whose guest powers itself off; then Always",
    "Stopped after the power off; Running again with Always",
    place=CLUSTER,
)
def machine_poweroff(session, result):
    vm = session.vm("machine-off", create=False)
    with Machine(vm, "RerunOnFailure") as machine:
        boot(result, vm)
        vm.console().send("poweroff\n")
        result.step("final phase", vm.wait, "Succeeded", lambda vmi: phase(vmi) == "Succeeded", 60)
        result.step("status Stopped", machine.shown, "Stopped")
        machine.patch({"runStrategy": "Always"})
        result.step("status Running", machine.shown, "Running", 180)
        machine.end(result)
    return vm


@scenario(
    f"{VMS_AT_ONCE} VMIs are created at once and deleted at once",
    "all Running, all gone; each pod ends with 0",
    place=CLUSTER,
)
def ten_at_once(session, result):
    vms = [session.vm(f"crowd-{index}", change=small) for index in range(VMS_AT_ONCE)]
    result.step("all Running", lambda: sorted(vm.running(600) for vm in vms)[-1])
    for vm in vms:
        vm.delete()
    result.step("all gone", lambda: [vm.gone(300) for vm in vms][-1][-1])
    result.step("exit statuses", lambda: sorted({vm.record.exit_code for vm in vms}, key=str))
    return vms[0]


def small(vmi):
    vmi["spec"]["domain"]["memory"]["guest"] = "128Mi"
    vmi["spec"]["domain"]["resources"] = {"requests": {"memory": "128Mi", "cpu": "10m"}}


@scenario(
    "a guest fills its memory in a pod with a memory limit",
    "the guest runs on",
    place=CLUSTER,
)
def memory_limit(session, result):
    def change(vmi):
        del vmi["spec"]["domain"]["memory"]
        vmi["spec"]["domain"]["resources"] = {
            "requests": {"memory": "256Mi", "cpu": "200m"},
            "limits": {"memory": "256Mi", "cpu": "1"},
        }

    vm = session.vm("memory-limit", change=change)
    boot(result, vm)
    result.step(
        "fill",
        vm.shell,
        "dd if=/dev/zero of=/fill bs=1M count=120 2>&1 | tail -1; rm /fill",
        60,
        measured=True,
    )
    time.sleep(5)
    result.step("still Running", lambda: phase(vm.latest))
    end_by_deletion(result, vm)
    return vm


@scenario(
    "launcherctl by kubectl exec in the pod",
    "each verb answers; KubeVirt's image has none",
    place=CLUSTER,
    default=False,
)
def launcherctl_in_the_pod(session, result):
    vm = session.vm("exec")
    boot(result, vm)
    for verb in LAUNCHERCTL:
        name = " ".join(verb)
        result.step(f"launcherctl {name}", lambda verb=verb: vm.pod.execute("launcherctl", *verb)["exit"])
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a readiness probe with a command in the guest, and a liveness probe that pings the agent",
    "Ready follows the command; the VMI ends when the agent is gone",
    place=CLUSTER,
)
def kubelet_probes(session, result):
    def change(vmi):
        times = {"initialDelaySeconds": 5, "periodSeconds": 3, "timeoutSeconds": 5}
        vmi["spec"]["readinessProbe"] = {"exec": {"command": ["cat", "/tmp/ready"]}, **times}
        vmi["spec"]["livenessProbe"] = {
            "guestAgentPing": {},
            **times,
            "initialDelaySeconds": 60,
            "failureThreshold": 3,
        }

    vm = session.vm("kubelet-probes", change=change)
    boot(result, vm)
    result.step("guest: touch", vm.shell, "touch /tmp/ready")
    result.step("Ready", vm.wait, "Ready", lambda vmi: kube.is_true(vmi, "Ready"), 60)
    result.step("guest: rm", vm.shell, "rm /tmp/ready")
    result.step("not Ready", vm.wait, "not Ready", lambda vmi: not kube.is_true(vmi, "Ready"), 60)
    result.step("why", lambda: without_times(vm.condition("Ready")))
    result.step("agent ends", vm.shell, "touch /run/no-agent; killall qemu-ga")
    result.step("final phase", vm.final_phase, 180)
    end_by_deletion(result, vm)
    return vm
