"""Network interfaces that come, go and change their link while the guest runs."""

import time

from kit.normalize import status
from kit.pod_network import PodNetwork, make_bridge
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.vm import VM
from scenarios.network import GUEST_LINKS, TAP_PLUGIN, guest_addresses, guest_ping, interface, interface_status

NETWORK = {"multus": {"networkName": "default/blue"}}


@scenario("a network interface is attached and detached while the guest runs, twice",
          "the interface in the status with its sources; the guest reaches its network; then it is gone from both")
def interface_hotplug(session, result):
    network = PodNetwork("nicplug", host=10)
    make_bridge("net-blue", ["10.20.0.1/24"])
    vm = VM(session, "interface-hotplug", change=lambda vmi: interface(vmi, "default", "masquerade", {"pod": {}}), network=network.name)
    boot(result, vm)
    result.step("interface with addresses", guest_addresses, vm)
    for attempt in ("", ", again"):
        network.plug_tap("blue", "net-blue", mac="02:00:00:00:03:01")
        result.step("attach" + attempt, attach, vm)
        time.sleep(3)
        result.step("guest: links" + attempt, vm.shell, GUEST_LINKS)
        result.step("guest pings a peer in the network" + attempt, guest_pings_blue, vm)
        result.data.setdefault("attached_status", status(vm.latest).get("interfaces"))
        result.step("detach" + attempt, detach, vm, network)
        time.sleep(2)
        result.step("guest: links afterwards" + attempt, vm.shell, GUEST_LINKS)
    end_by_deletion(result, vm)
    network.remove()
    return vm


def guest_pings_blue(vm):
    vm.shell("ip link set eth1 up; ip addr add 10.20.0.7/24 dev eth1")
    return guest_ping(vm, "10.20.0.1")


def attach(vm):
    """virt-api's part: spec; virt-controller's part, once Multus has plugged the pod's link: status."""
    def specify(vmi):
        vmi["spec"]["domain"]["devices"]["interfaces"].append(
            {"name": "blue", "binding": {"name": TAP_PLUGIN}, "model": "virtio", "macAddress": "02:00:00:00:03:11"})
        vmi["spec"]["networks"].append({"name": "blue", **NETWORK})

    def report(vmi):
        vmi["status"]["interfaces"].append(interface_status("blue", NETWORK))
    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.edit(report)
    vm.wait("the interface in the domain", lambda vmi: "domain" in sources(vmi), 30, mark)
    return sources(vm.latest)


def detach(vm, network):
    """virt-api's part: state absent; then virt-controller and Multus take the pod's link, and the spec goes."""
    def specify(vmi):
        for each in vmi["spec"]["domain"]["devices"]["interfaces"]:
            if each["name"] == "blue":
                each["state"] = "absent"

    def forget(vmi):
        devices = vmi["spec"]["domain"]["devices"]
        devices["interfaces"] = [each for each in devices["interfaces"] if each["name"] != "blue"]
        vmi["spec"]["networks"] = [each for each in vmi["spec"]["networks"] if each["name"] != "blue"]
        vmi["status"]["interfaces"] = [each for each in vmi["status"]["interfaces"] if each.get("name") != "blue"]
    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.wait("the interface gone from the domain", lambda vmi: "domain" not in sources(vmi), 30, mark)
    left = sources(vm.latest)
    network.unplug_tap("blue")
    vm.edit(forget)
    return left


def sources(vmi):
    """infoSource of the interface blue."""
    return next((each.get("infoSource", "") for each in vmi["status"].get("interfaces", []) if each.get("name") == "blue"), "none")


@scenario("an interface's link is set down and up again; a VM starts with a link that is down",
          "linkState in the status, the carrier in the guest")
def link_state(session, result):
    network = PodNetwork("linkstate", host=11)
    network.plug_tap("blue", "net-blue", mac="02:00:00:00:03:02")

    def change(vmi):
        interface(vmi, "default", "masquerade", {"pod": {}})
        interface(vmi, "blue", TAP_PLUGIN, NETWORK, state="down")
    vm = VM(session, "link-state", change=change, network=network.name)
    boot(result, vm)
    result.step("guest: links", vm.shell, "ip link set eth1 up; sleep 1; " + GUEST_LINKS)
    for name, state in (("blue", "up"), ("default", "down"), ("default", "up")):
        result.step(f"link of {name} {state}", set_link, vm, name, state)
        time.sleep(1)
        result.step(f"guest: links, {name} {state}", vm.shell, GUEST_LINKS)
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    network.remove()
    return vm


def set_link(vm, name, state):
    def specify(vmi):
        for each in vmi["spec"]["domain"]["devices"]["interfaces"]:
            if each["name"] == name:
                each["state"] = state

    def reported(vmi):
        return any(each.get("name") == name and each.get("linkState") == state for each in vmi["status"].get("interfaces", []))
    mark = vm.recorder.mark()
    vm.edit(specify)
    vm.wait(f"linkState {state}", reported, 30, mark)
    return state
