"""Network interfaces that come, go and change their link while the guest runs."""

import time

from kit.normalize import status
from kit.pod_network import PodNetwork, make_bridge
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from scenarios.network import (
    GUEST_LINKS,
    TAP_PLUGIN,
    guest_addresses,
    guest_ping,
    interface,
    interface_status,
)

NETWORK = {"multus": {"networkName": "default/blue"}}


@scenario(
    "a network interface is attached and detached while the guest runs: by a binding plugin with a tap, then by bridge",
    "the interface in the status with its sources; the guest reaches its network; then it is gone from both",
)
def interface_hotplug(session, result):
    with PodNetwork("nicplug", host=10) as network:
        make_bridge("net-blue", ["10.20.0.1/24"])
        vm = session.vm(
            "interface-hotplug",
            change=lambda vmi: interface(vmi, "default", "masquerade", {"pod": {}}),
            network=network.name,
        )
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        for binding, plug, unplug in (
            ("tap", network.plug_tap, network.unplug_tap),
            ("bridge", network.plug_network, network.unplug_network),
        ):
            plug("blue", "net-blue", mac="02:00:00:00:03:01")
            result.step(f"{binding}: attach", attach, vm, binding)
            time.sleep(3)
            result.step(f"{binding}: guest: links", vm.shell, GUEST_LINKS)
            result.step(f"{binding}: guest pings a peer in the network", guest_pings_blue, vm)
            result.step(f"{binding}: links in the pod", network.links_inside)
            result.data.setdefault("attached_status", status(vm.latest).get("interfaces"))
            result.step(f"{binding}: detach", detach, vm)
            time.sleep(2)
            result.step(f"{binding}: guest: links afterwards", vm.shell, GUEST_LINKS)
            result.step(f"{binding}: links in the pod afterwards", network.links_inside)
            unplug("blue")
            vm.edit(forget)
        end_by_deletion(result, vm)
        return vm


def guest_pings_blue(vm):
    vm.shell("ip link set eth1 up; ip addr add 10.20.0.7/24 dev eth1")
    return guest_ping(vm, "10.20.0.1")


def attach(vm, binding):
    """virt-api's part: spec; virt-controller's part, once Multus has plugged the pod's link: status."""
    how = {"bridge": {}} if binding == "bridge" else {"binding": {"name": TAP_PLUGIN}}

    def specify(vmi):
        devices = vmi["spec"]["domain"]["devices"]
        devices["interfaces"].append(
            {"name": "blue", "model": "virtio", "macAddress": "02:00:00:00:03:11", **how}
        )
        vmi["spec"]["networks"].append({"name": "blue", **NETWORK})

    def report(vmi):
        vmi["status"]["interfaces"].append(interface_status("blue", NETWORK))

    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.edit(report)
    vm.wait("the interface in the domain", lambda vmi: "domain" in sources(vmi), 30, mark)
    return sources(vm.latest)


def detach(vm):
    """virt-api's part."""

    def specify(vmi):
        for each in vmi["spec"]["domain"]["devices"]["interfaces"]:
            if each["name"] == "blue":
                each["state"] = "absent"

    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.wait("the interface gone from the domain", lambda vmi: "domain" not in sources(vmi), 30, mark)
    return sources(vm.latest)


def forget(vmi):
    """virt-controller's part, once Multus has taken the pod's link."""
    devices = vmi["spec"]["domain"]["devices"]
    devices["interfaces"] = [each for each in devices["interfaces"] if each["name"] != "blue"]
    vmi["spec"]["networks"] = [each for each in vmi["spec"]["networks"] if each["name"] != "blue"]
    vmi["status"]["interfaces"] = [each for each in vmi["status"]["interfaces"] if each.get("name") != "blue"]


def sources(vmi):
    """infoSource of the interface blue."""
    return next(
        (
            each.get("infoSource", "")
            for each in vmi["status"].get("interfaces", [])
            if each.get("name") == "blue"
        ),
        "none",
    )


@scenario(
    "an interface's link is set down and up again; a VM starts with a link that is down",
    "linkState in the status, the carrier in the guest",
)
def link_state(session, result):
    with PodNetwork("linkstate", host=11) as network:
        network.plug_tap("blue", "net-blue", mac="02:00:00:00:03:02")

        def change(vmi):
            interface(vmi, "default", "masquerade", {"pod": {}})
            interface(vmi, "blue", TAP_PLUGIN, NETWORK, state="down")

        vm = session.vm("link-state", change=change, network=network.name)
        boot(result, vm)
        result.step("guest: links", vm.shell, "ip link set eth1 up; sleep 1; " + GUEST_LINKS)
        for name, state in (("blue", "up"), ("default", "down"), ("default", "up")):
            result.step(f"link of {name} {state}", set_link, vm, name, state)
            time.sleep(1)
            result.step(f"guest: links, {name} {state}", vm.shell, GUEST_LINKS)
        result.record("running_status", status(vm.latest))
        end_by_deletion(result, vm)
        return vm


def set_link(vm, name, state):
    def specify(vmi):
        for each in vmi["spec"]["domain"]["devices"]["interfaces"]:
            if each["name"] == name:
                each["state"] = state

    def reported(vmi):
        return any(
            each.get("name") == name and each.get("linkState") == state
            for each in vmi["status"].get("interfaces", [])
        )

    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.wait(f"linkState {state}", reported, 30, mark)
    return state
