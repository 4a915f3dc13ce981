"""SR-IOV interfaces of VMs. No machine has the device that the pod's file names: that libvirt was
asked for it shows in what libvirt says of it, which is in the launcher's log."""

import json
import re

from kit.registry import TWO_NODES, scenario
from kit.steps import boot, end_after_final_phase, end_by_deletion, works
from kit.wait import until
from scenarios import migration
from scenarios.migration_devices import dedicated_cpu, moves_to_another_cpu, second_cpu
from scenarios.network import interface_status

NETWORK = {"multus": {"networkName": "default/fast"}}
DEVICE = "0000:fe:1f.7"
# As virt-controller writes it from Multus' annotation.
NETWORK_INFO = json.dumps(
    {
        "interfaces": [
            {
                "network": "fast",
                "deviceInfo": {"type": "pci", "version": "1.0.0", "pci": {"pci-address": DEVICE}},
            }
        ]
    }
)
REFUSAL = re.compile(f"Device {DEVICE} not found")


@scenario(
    "an SR-IOV interface is plugged into a VM with a dedicated CPU, and there is no such device",
    "virt-handler asks for the device, and the launcher asks libvirt, which has none; the guest runs on",
)
def sriov_hotplug(session, result):
    return plugged(
        result, session.vm("sriov-hotplug", change=dedicated_cpu, cpuset="0", network_info=NETWORK_INFO)
    )


@scenario(
    "the same, and the VM has no dedicated CPU",
    "virt-handler asks for the device, and the launcher asks libvirt, which has none; the guest runs on",
)
def sriov_hotplug_shared_cpus(session, result):
    return plugged(result, session.vm("sriov-shared-cpus", network_info=NETWORK_INFO))


def plugged(result, vm):
    """The VM, to which the interface is plugged in."""
    boot(result, vm)
    specify(vm)
    report(vm)
    result.step("libvirt is asked for the device", refusal, vm.pod)
    works(result, vm, "afterwards")
    vm.console().send("poweroff\n")
    result.step("final phase", vm.final_phase)
    end_after_final_phase(result, vm)
    return vm


@scenario(
    "a guest with a dedicated CPU gets an SR-IOV interface by a migration, and there is no such device",
    "at the target virt-handler asks for the device, and the launcher asks libvirt, which has none; the guest goes on",
    place=TWO_NODES,
    lacks=second_cpu,
)
def migrate_sriov(session, result):
    vm = moves_to_another_cpu(session, "migrate-sriov", network_info=NETWORK_INFO)
    migration.boot(result, vm)
    specify(vm)
    migration.migrate(session, result, vm)
    report(vm)
    result.step("target: libvirt is asked for the device", refusal, vm.pod)
    migration.status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


def specify(vm):
    """virt-api's part."""

    def change(vmi):
        vmi["spec"]["domain"]["devices"].setdefault("interfaces", []).append({"name": "fast", "sriov": {}})
        vmi["spec"].setdefault("networks", []).append({"name": "fast", **NETWORK})

    vm.edit(change)


def report(vm):
    """virt-controller's part, once the VM is in a pod that has the device."""
    vm.edit(lambda vmi: vmi["status"].setdefault("interfaces", []).append(interface_status("fast", NETWORK)))


def refusal(pod, timeout=40):
    """What libvirt says of the device, by the pod's log."""

    def said():
        with open(pod.log, errors="replace") as f:
            found = REFUSAL.search(f.read())
        return found and found.group(0)

    return until("libvirt's refusal in the launcher's log", said, timeout)
