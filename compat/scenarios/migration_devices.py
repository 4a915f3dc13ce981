"""Live migrations of VMs with more than a disk: networks, dedicated CPUs, hook sidecars."""

import os
import time

from kit import sidecar
from kit.migration_session import MigratingVM
from kit.pod_network import POD_GATEWAY
from kit.registry import TWO_NODES, scenario
from kit.remote_node import RemoteNetwork
from kit.steps import end_by_deletion
from scenarios.migration import boot, migrate, status_at_the_target
from scenarios.network import TAP_PLUGIN, guest_addresses, guest_network, guest_ping, interface

PRODUCT = "Hooked"
# Gives the guest's machine another product name, and notes each call.
HOOK = f"""#!/bin/sh
echo onDefineDomain >>"$CALLS"
printf '%s' "$4" | sed 's#\\(name=.product.>\\)None<#\\1{PRODUCT}<#'
"""


def second_cpu(_session):
    """Why two CPUs cannot be told apart here."""
    return None if (os.cpu_count() or 1) > 1 else "this machine has one CPU"


@scenario(
    "a guest with the pod's network by masquerade, and a secondary one by a tap whose link is refreshed",
    "the interface has the target pod's address; pings both ways at the target; the guest's link went down and up",
    place=TWO_NODES,
)
def migrate_pod_network(session, result):
    def change(vmi):
        interface(vmi, "default", "masquerade", {"pod": {}})
        blue = {"multus": {"networkName": "default/blue"}}
        # The node's bridge learns a MAC at one port only: the guest's has to differ from the pod
        # link's.
        interface(vmi, "blue", TAP_PLUGIN, blue, macAddress="02:00:00:00:02:11")

    here, there = session.nodes
    with (
        RemoteNetwork(here, "migrated", host=5) as source,
        RemoteNetwork(there, "migrated", host=6) as target,
    ):
        for index, network in enumerate((source, target)):
            network.call("plug_tap", "blue", "net-blue", f"02:00:00:00:02:0{index + 1}")
        vm = MigratingVM(session, "migrate-pod-network", change=change, network="migrated")
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        result.step("guest: network", guest_network, vm)
        result.step("guest pings a peer outside the pod", guest_ping, vm, POD_GATEWAY)
        result.step("a peer pings the guest at the pod's address", source.ping_from_node, source.address)
        before = carrier_changes(vm)
        migrate(session, result, vm)
        result.step(
            "the interface has the target pod's address",
            vm.wait,
            "address",
            lambda vmi: vmi["status"]["interfaces"][0].get("ipAddress") == target.address,
            60,
        )
        result.step("target: guest: network", guest_network, vm)
        result.step("target: guest pings a peer outside the pod", guest_ping, vm, POD_GATEWAY)
        result.step("target: a peer pings the guest", target.ping_from_node, target.address)
        result.step("target: links in the pod", target.call, "links_inside")
        result.step("link changes in the guest: eth0, eth1", changes_since, vm, before)
        status_at_the_target(result, vm)
        end_by_deletion(result, vm)
        return vm


def carrier_changes(vm):
    text = vm.shell("cat /sys/class/net/eth0/carrier_changes /sys/class/net/eth1/carrier_changes")
    return [int(word) for word in text.split()]


def changes_since(vm, before):
    """The guest's kernel needs a moment for a link that is up again."""
    time.sleep(2)
    return [after - count for after, count in zip(carrier_changes(vm), before, strict=True)]


@scenario(
    "a guest with a dedicated CPU; the target's pod has another one",
    "targetCPUSet and targetNodeTopology; the virtual CPU is pinned to the pod's CPU at the source, and at the target",
    place=TWO_NODES,
    lacks=second_cpu,
)
def migrate_dedicated_cpus(session, result):
    vm = moves_to_another_cpu(session, "migrate-dedicated")
    boot(result, vm)
    result.step("virtual CPUs are pinned to", lambda: vm.pod.vcpu_affinities())
    migrate(session, result, vm)
    result.step("target: virtual CPUs are pinned to", lambda: vm.pod.vcpu_affinities())
    result.step("targetCPUSet", lambda: vm.migration_state().get("targetCPUSet"))
    result.step("targetNodeTopology", lambda: bool(vm.migration_state().get("targetNodeTopology")))
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


def moves_to_another_cpu(session, name, **target_options):
    """A VM with a dedicated CPU: the first at the source, the second at the target."""
    options = {"cpuset": "1", **target_options}
    return MigratingVM(session, name, change=dedicated_cpu, cpuset="0", target_options=options)


def dedicated_cpu(vmi):
    vmi["spec"]["domain"]["cpu"]["dedicatedCpuPlacement"] = True
    resources = {"cpu": "1", "memory": "256Mi"}
    vmi["spec"]["domain"]["resources"] = {"requests": resources, "limits": resources}
    vmi["status"]["qosClass"] = "Guaranteed"


@scenario(
    "a guest whose domain a hook sidecar changes",
    "the guest has the sidecar's change at both nodes; the hook is called on both; the sidecars end with status 0",
    place=TWO_NODES,
)
def migrate_with_sidecar(session, result):
    def change(vmi):
        vmi["metadata"]["annotations"][sidecar.ANNOTATION] = '[{"args": ["--version", "v1alpha3"]}]'

    vm = MigratingVM(session, "migrate-sidecar", change=change, hooks=[HOOK])
    boot(result, vm)
    source = vm.pod
    result.step("guest: the product", vm.shell, "cat /sys/class/dmi/id/product_name")
    result.step("calls", source.hook_calls)
    migrate(session, result, vm)
    result.step("target: guest: the product", vm.shell, "cat /sys/class/dmi/id/product_name")
    result.step("target: calls", vm.pod.hook_calls)
    result.step("source: the sidecars have ended with", source.sidecar_exit_codes)
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm
