"""In a cluster: what a VM is made of, by firmware, kernels and hooks; more of it while it runs; a look from outside."""

import json
import subprocess

from cluster import objects
from cluster.build import KERNEL
from cluster.virtual_machine import Machine
from cluster.vm import COMPUTE, pods_path
from kit import kube
from kit.registry import CLUSTER, scenario
from kit.sidecar import ANNOTATION
from kit.steps import boot, end_by_deletion
from kit.wait import until
from scenarios.cluster_migration import movable
from scenarios.growth import ONLINE, total_mebibytes

UPDATE_TIMEOUT = 300  # seconds: the workload updater looks every 30 s, and then the VM migrates
VENDOR = "Compat Boards"
# KubeVirt's launcher calls it twice for a start, the second time with the first call's result.
SCRIPT = f"""#!/bin/sh
case "$4" in *'{VENDOR}'*) board= ;; *) board='<baseBoard><entry name="manufacturer">{VENDOR}</entry></baseBoard>' ;; esac
printf '%s' "$4" | sed "s|</sysinfo>|$board</sysinfo>|"
"""
DEBUGGER = "debugger"
# The pod's user may not look into the launcher's process: its program has a file capability.
AS_ROOT = {"securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}


@scenario(
    "a hook sidecar with a ConfigMap's script adds a manufacturer of the board",
    "the domain has it, and so has the guest",
    place=CLUSTER,
)
def sidecar_of_a_config_map(session, result):
    objects.apply(session, objects.config_map(session.namespace, "hook", {"script": SCRIPT}))
    vm = session.vm("sidecar", change=with_sidecar)
    boot(result, vm)
    result.step("the domain has it", lambda: VENDOR in vm.pod.virsh("dumpxml")["output"])
    result.step("guest: board", vm.shell, "machine | grep board_vendor")
    end_by_deletion(result, vm)
    return vm


def with_sidecar(vmi):
    hook = {"name": "hook", "key": "script", "hookPath": "/usr/bin/onDefineDomain"}
    sidecars = [{"args": ["--version", "v1alpha3"], "configMap": hook}]
    vmi["metadata"]["annotations"] = {ANNOTATION: json.dumps(sidecars)}


@scenario(
    "a VM boots a kernel and an initrd from an image",
    "AgentConnected; the guest has the command line of the VMI",
    place=CLUSTER,
)
def kernel_boot(session, result):
    vm = session.vm("kernel-boot", change=with_kernel)
    boot(result, vm)
    result.step("guest: command line", vm.shell, "cat /proc/cmdline")
    end_by_deletion(result, vm)
    return vm


def with_kernel(vmi):
    vmi["spec"]["domain"]["firmware"]["kernelBoot"] = {
        "kernelArgs": "console=ttyS0 quiet panic=-1 net.ifnames=0 compat.kernel-boot",
        "container": {
            "image": KERNEL,
            "imagePullPolicy": "IfNotPresent",
            "kernelPath": "/boot/vmlinuz",
            "initrdPath": "/boot/initrd.img",
        },
    }


@scenario(
    "a VirtualMachine gets a second CPU, and then 256 MiB more, while it runs",
    "a migration each; status, libvirt and the guest follow; no restart is required. An emulated guest does not see the CPU",
    place=CLUSTER,
)
def cpu_and_memory_live_update(session, result):
    vm = session.vm("live-update", change=growing, create=False)
    with Machine(vm, "Always") as machine:
        boot(result, vm)
        vm.shell(f"echo online_movable > {ONLINE}")
        before = total_mebibytes(vm)
        machine.patch({"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}})
        result.step("2 sockets", updated, vm, "HotVCPUChange", lambda: vm.status["currentCPUTopology"])
        result.step("libvirt: CPUs", lambda: vm.pod.virsh("vcpucount", "--live", "--active")["output"])
        result.step("guest: CPUs", vm.shell, "nproc")
        machine.patch({"template": {"spec": {"domain": {"memory": {"guest": "1280Mi"}}}}})
        result.step("1280 MiB", updated, vm, "HotMemoryChange", lambda: vm.status["memory"]["guestRequested"])
        result.step(
            "the guest takes it", lambda: vm.wait("guestCurrent", has_grown, 60) and vm.status["memory"]
        )
        result.step("guest: 256 MiB more", lambda: 200 < total_mebibytes(vm) - before < 280)
        result.step("restart required", lambda: kube.is_true(kube.get(machine.path), "RestartRequired"))
        machine.end(result)
    return vm


def growing(vmi):
    """KubeVirt plugs memory only into guests that have 1 GiB."""
    movable(vmi)
    domain = vmi["spec"]["domain"]
    domain["cpu"]["maxSockets"] = 2
    domain["memory"] = {"guest": "1Gi", "maxGuest": "2Gi"}
    domain["resources"]["requests"]["memory"] = "1Gi"


def updated(vm, kind, value):
    """What `value` gives once the condition that asks for a migration has come and gone."""
    vm.has_condition(kind, 60, since=0)
    vm.lacks_condition(kind, UPDATE_TIMEOUT)
    vm.socket = None  # the console is another virt-handler's
    return value()


def has_grown(vmi):
    return vmi["status"]["memory"]["guestCurrent"] != "1Gi"


@scenario(
    "launcherctl by kubectl debug, from a container of the same image beside the launcher's",
    "it finds the launcher by /proc/1/root; KubeVirt's image has none",
    place=CLUSTER,
    default=False,
)
def debug_container(session, result):
    vm = session.vm("debug")
    boot(result, vm)
    result.step("launcherctl status", debug, vm, "launcherctl", "status", "--root", "/proc/1/root")
    end_by_deletion(result, vm)
    return vm


def debug(vm, *command):
    """Exit status and output of a command in an ephemeral container that sees the launcher's processes."""
    name = vm.pod.current()
    path = f"{pods_path(vm.namespace)}/{name}"
    image = next(each["image"] for each in kube.get(path)["spec"]["containers"] if each["name"] == COMPUTE)
    where = ["--image", image, "--target", COMPUTE, "--container", DEBUGGER]
    who = ["--profile", "general", "--custom", "/dev/stdin"]
    kubectl(vm, "debug", name, *where, *who, "--", *command, input=json.dumps(AS_ROOT))
    ended = until("the debug container's end", lambda: end_of_debugger(kube.get(path)), 90, 1)
    return {"exit": ended["exitCode"], "output": kubectl(vm, "logs", name, "-c", DEBUGGER).strip()}


def kubectl(vm, *arguments, **options):
    command = vm.session.kubectl_command(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl {arguments[0]}: {done.stderr.strip()[-400:]}")
    return done.stdout


def end_of_debugger(pod):
    """How it ended; None before."""
    statuses = pod["status"].get("ephemeralContainerStatuses", [])
    return next((each["state"].get("terminated") for each in statuses if each["name"] == DEBUGGER), None)
