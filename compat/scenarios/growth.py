"""CPUs and memory that are plugged into a running guest. In KubeVirt that is the end of a migration to a larger pod."""

from kit import kube
from kit.kube import condition
from kit.migration_session import MigratingVM
from kit.registry import TWO_NODES, scenario
from kit.steps import end_by_deletion
from scenarios.migration import boot, migrate, status_at_the_target

POD_MEMORY_LABEL = "kubevirt.io/vmi-pod-memory-resource-requests"
ONLINE = "/sys/devices/system/memory/auto_online_blocks"


def changed_by_its_user(vmi, kind, change):
    """What virt-controller makes of a change of the VM: the VMI's spec, and a condition."""
    change(vmi)
    now = kube.now()
    vmi["status"]["conditions"].append(
        {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    )


def condition_is_gone(vm, kind):
    vm.wait(f"{kind} gone", lambda vmi: condition(vmi, kind) is None, 20)
    return "gone"


@scenario(
    "a guest with 1 CPU of at most 4 gets 3, by a migration",
    "condition HotVCPUChange goes, currentCPUTopology has 3 sockets, and libvirt has 3 virtual CPUs",
    place=TWO_NODES,
)
def migrate_more_cpus(session, result):
    def change(vmi):
        vmi["spec"]["domain"]["cpu"]["maxSockets"] = 4

    vm = MigratingVM(session, "migrate-cpus", change=change)
    boot(result, vm)
    result.step("virtual CPUs", lambda: len(vm.pod.vcpu_affinities()))

    def more(vmi):
        vmi["spec"]["domain"]["cpu"]["sockets"] = 3

    vm.edit(lambda vmi: changed_by_its_user(vmi, "HotVCPUChange", more))
    migrate(session, result, vm)
    result.step("condition HotVCPUChange", condition_is_gone, vm, "HotVCPUChange")
    result.step("currentCPUTopology", lambda: vm.status["currentCPUTopology"])
    result.step("target: virtual CPUs", lambda: len(vm.pod.vcpu_affinities()))
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a guest with 256 MiB of at most 512 gets 384, by a migration",
    "condition HotMemoryChange goes, status.memory has what was asked for and what the guest has, and so has the guest",
    place=TWO_NODES,
)
def migrate_more_memory(session, result):
    def change(vmi):
        vmi["spec"]["domain"]["memory"]["maxGuest"] = "512Mi"
        # KubeVirt's launcher has a PCI port for the memory only where interfaces can be plugged in.
        vmi["metadata"]["annotations"]["kubevirt.io/pci-interface-slot-count"] = "4"

    vm = MigratingVM(session, "migrate-memory", change=change)
    boot(result, vm)
    vm.shell(f"echo online_movable > {ONLINE}")
    before = total_mebibytes(vm)

    def more(vmi):
        vmi["spec"]["domain"]["memory"]["guest"] = "384Mi"
        vmi["spec"]["domain"]["resources"]["requests"]["memory"] = "384Mi"
        vmi["metadata"]["labels"][POD_MEMORY_LABEL] = "1Gi"

    vm.edit(lambda vmi: changed_by_its_user(vmi, "HotMemoryChange", more))
    migrate(session, result, vm)
    result.step("condition HotMemoryChange", condition_is_gone, vm, "HotMemoryChange")
    result.step("status.memory", memory_status, vm)
    result.step("target: the guest has 128 MiB more", lambda: 100 < total_mebibytes(vm) - before < 140)
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


def memory_status(vm):
    """Once the guest has taken what it was given."""
    vm.wait("guestCurrent", lambda vmi: vmi["status"]["memory"]["guestCurrent"] != "256Mi", 20)
    return vm.status["memory"]


def total_mebibytes(vm):
    words = vm.shell("grep MemTotal: /proc/meminfo").split()
    return int(words[words.index("MemTotal:") + 1]) // 1024
