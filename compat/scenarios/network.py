"""Pod networks: what virt-handler and the launcher set up between a pod's links and the guest."""

import json
import os
import re
import subprocess
import sys
import time

from kit.kube import phase
from kit.normalize import status
from kit.pod_network import (
    POD_GATEWAY,
    POD_GATEWAY_6,
    PodNetwork,
    hashed_link,
    ip,
    make_bridge,
    ping_from_node,
)
from kit.registry import scenario
from kit.steps import boot, end_by_deletion

KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Asks the guest's own DHCP client for every option by name, and prints what its script gets in its
# environment.
SHOW_SCRIPT = (
    r"printf '#!/bin/sh\n[ $1 = bound ] && env >/run/answer\nexit 0\n' >/run/show; chmod 755 /run/show"
)
ASK = "-O search -O staticroutes -O ntpsrv -O mtu -O tftp -O bootfile -O 240 -O 254"
PROBE = "dhcp6probe"
TAP_PLUGIN = "tap"  # the binding plugin in the KubeVirt CR


def interface(vmi, name, binding, network, **fields):
    """Adds an interface, its network, and the status that virt-controller writes before the start."""
    devices = vmi["spec"]["domain"]["devices"]
    devices.pop("autoattachPodInterface", None)
    plugin = {"binding": {"name": binding}} if binding == TAP_PLUGIN else {binding: {}}
    devices.setdefault("interfaces", []).append({"name": name, **plugin, "model": "virtio", **fields})
    vmi["spec"].setdefault("networks", []).append({"name": name, **network})
    vmi["status"].setdefault("interfaces", []).append(interface_status(name, network))


def interface_status(name, network, link=None):
    if "pod" in network:
        return {"name": name, "podInterfaceName": "eth0", "infoSource": "", "queueCount": 0}
    return {"name": name, "podInterfaceName": link or hashed_link(name), "infoSource": "multus-status"}


def guest_addresses(vm, family="ipAddress", count=1):
    """status.interfaces, once the guest agent has reported that many interfaces with an address."""

    def reported(vmi):
        found = [
            i
            for i in vmi["status"].get("interfaces", [])
            if i.get(family) and "guest-agent" in i.get("infoSource", "")
        ]
        return len(found) >= count

    vm.wait("interfaces with addresses", reported, 40, since=0)
    return vm.status["interfaces"]


def dhcp_answer(vm, link="eth0"):
    """All that the guest's DHCP client gets, as a mapping."""
    vm.shell(SHOW_SCRIPT)
    vm.shell(
        f"rm -f /run/answer; udhcpc -i {link} -n -q -f -t 5 -T 1 {ASK} -s /run/show >/run/dhcp.log 2>&1", 30
    )
    text = vm.shell("cat /run/answer 2>/dev/null || echo no answer")
    return (
        dict(sorted(line.split("=", 1) for line in text.splitlines() if re.match("[a-z0-9]+=", line))) or text
    )


def dhcp6_answer(network, bridge):
    """Of the server behind the guest's bridge: a client plugged to it. The guest has none."""
    ip("netns", "add", PROBE)
    try:
        ip(
            "link",
            "add",
            "probe",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "address",
            "02:00:00:00:06:01",
            "netns",
            PROBE,
        )
        ip("link", "set", "probe", "netns", network.name)
        ip("link", "set", "probe", "master", bridge, "up", namespace=network.name)
        ip("link", "set", "eth0", "up", namespace=PROBE)
        command = [
            "ip",
            "netns",
            "exec",
            PROBE,
            "env",
            f"PYTHONPATH={KIT}",
            sys.executable,
            "-m",
            "kit.dhcp6_client",
            "eth0",
        ]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        )
    finally:
        ip("netns", "del", PROBE)


# Name, MAC, MTU, carrier and PCI address of the guest's links.
GUEST_LINKS = (
    "for l in /sys/class/net/eth*; do p=$(readlink -f $l/device/..); "
    "echo ${l##*/} $(cat $l/address $l/mtu $l/carrier) ${p##*/}; done"
)


def guest_network(vm, link="eth0"):
    """Addresses and routes, as the guest has them."""
    return vm.shell(
        f"ip -4 addr show {link} | grep -o 'inet [^ ]*'; ip -4 route | sort; "
        f"grep . /etc/resolv.conf; cat /sys/class/net/{link}/mtu"
    )


@scenario(
    "masquerade on the pod's network, IPv4",
    "the guest's address, DHCP's options, pings both ways, the pod's links and interface in the status",
)
def masquerade(session, result):
    with PodNetwork("masquerade") as network:
        vm = session.vm(
            "masquerade",
            change=lambda vmi: interface(vmi, "default", "masquerade", {"pod": {}}),
            network=network.name,
        )
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        result.step("guest: network", guest_network, vm)
        result.step("guest: DHCP's answer", dhcp_answer, vm)
        result.step("guest pings a peer outside the pod", guest_ping, vm, POD_GATEWAY)
        result.step("a peer pings the guest at the pod's address", ping_from_node, network.address)
        result.step("links in the pod", network.links_inside)
        result.record("running_status", status(vm.latest))
        end_by_deletion(result, vm)
        return vm


def guest_ping(vm, address, size=56):
    """Packets received of three."""
    text = vm.shell(f"ping -c 3 -W 3 -s {size} {address} | grep received", 25)
    return text.split(", ")[1] if "received" in text else text


@scenario(
    "masquerade, IPv4 and IPv6, other networks for the guest, DHCP options, MTU 9000",
    "the answers of both DHCP servers; pings both ways in both families; large packets unfragmented",
)
def masquerade_dual_stack(session, result):
    with PodNetwork("dualstack", mtu=9000, ipv6=True) as network:
        dhcp = {
            "bootFileName": "boot.bin",
            "tftpServerName": "tftp.example",
            "ntpServers": ["10.244.0.1", "10.244.0.2"],
            "privateOptions": [
                {"option": 240, "value": "private.one"},
                {"option": 254, "value": "private.two"},
            ],
        }

        def change(vmi):
            interface(
                vmi,
                "default",
                "masquerade",
                {"pod": {"vmNetworkCIDR": "10.11.12.0/24", "vmIPv6NetworkCIDR": "fd10:11:12::/120"}},
                macAddress="02:00:00:00:01:01",
                dhcpOptions=dhcp,
            )
            vmi["spec"]["hostname"], vmi["spec"]["subdomain"] = "guest-host", "sub"

        vm = session.vm("dual-stack", change=change, network=network.name)
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        result.step("guest: network", guest_network, vm)
        result.step("guest: DHCP's answer", dhcp_answer, vm)
        result.step("DHCPv6's answer", dhcp6_answer, network, "k6t-eth0")
        result.step(
            "guest: IPv6 address",
            vm.shell,
            "ip -6 addr add fd10:11:12::2/120 dev eth0; sleep 2; ip -6 route add default via fd10:11:12::1; echo set",
        )
        result.step("guest pings a peer outside the pod", guest_ping, vm, POD_GATEWAY)
        result.step("guest pings a peer outside the pod, 8000 bytes", guest_ping, vm, POD_GATEWAY, 8000)
        result.step("guest pings a peer outside the pod, IPv6", guest_ping, vm, POD_GATEWAY_6)
        result.step(
            "a peer pings the guest at the pod's address, 8000 bytes", ping_from_node, network.address, 8000
        )
        result.step("a peer pings the guest at the pod's address, IPv6", ping_from_node, network.address_6)
        end_by_deletion(result, vm)
        return vm


@scenario(
    "bridge on the pod's network: the guest takes over the pod's address",
    "the guest has the pod's address and MAC by DHCP; pings both ways",
)
def bridge(session, result):
    with PodNetwork("bridge", host=6) as network:
        vm = session.vm(
            "bridge",
            change=lambda vmi: interface(vmi, "default", "bridge", {"pod": {}}),
            network=network.name,
        )
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        result.step("guest: network", guest_network, vm)
        result.step("guest: DHCP's answer", dhcp_answer, vm)
        result.step("guest: MAC", vm.shell, "cat /sys/class/net/eth0/address")
        result.step("guest pings a peer outside the pod", guest_ping, vm, POD_GATEWAY)
        result.step("a peer pings the guest", ping_from_node, network.address)
        result.step("links in the pod", network.links_inside)
        result.record("running_status", status(vm.latest))
        end_by_deletion(result, vm)
        return vm


@scenario(
    "masquerade, and two secondary networks by bridge, one with an address",
    "three interfaces with their MACs; DHCP where the pod's link has an address, none where it has none",
)
def secondary_bridges(session, result):
    with PodNetwork("several", host=7) as network:
        network.plug(hashed_link("blue"), "net-blue", mac="02:00:00:00:02:01", addresses=["10.20.0.7/24"])
        network.plug(hashed_link("red"), "net-red", mac="02:00:00:00:02:02")

        def change(vmi):
            interface(vmi, "default", "masquerade", {"pod": {}})
            for name in ("blue", "red"):
                interface(vmi, name, "bridge", {"multus": {"networkName": f"default/{name}"}})

        vm = session.vm("secondary-bridges", change=change, network=network.name)
        boot(result, vm)
        result.step("interfaces with addresses", guest_addresses, vm, "ipAddress", 2)
        result.step("guest: links", vm.shell, GUEST_LINKS)
        for link in ("eth0", "eth1", "eth2"):
            result.step(f"guest: DHCP's answer on {link}", dhcp_answer, vm, link)
        result.step("links in the pod", network.links_inside)
        result.record("running_status", status(vm.latest))
        end_by_deletion(result, vm)
        return vm


@scenario(
    "masquerade, and two secondary networks by a binding plugin with a tap; one MAC from the VMI",
    "three interfaces in the order of the VMI; the guest reaches the secondary network",
)
def several_networks(session, result):
    with PodNetwork("several", host=7) as network:
        make_bridge("net-blue", ["10.20.0.1/24"])
        network.plug_tap("blue", "net-blue", mac="02:00:00:00:02:01")
        network.plug_tap("red", "net-red", mac="02:00:00:00:02:02")

        def change(vmi):
            interface(vmi, "default", "masquerade", {"pod": {}})
            # The node's bridge learns a MAC at one port only: the guest's has to differ from the
            # pod link's.
            interface(
                vmi,
                "blue",
                TAP_PLUGIN,
                {"multus": {"networkName": "default/blue"}},
                macAddress="02:00:00:00:02:11",
            )
            interface(vmi, "red", TAP_PLUGIN, {"multus": {"networkName": "default/red"}})

        vm = session.vm("several-networks", change=change, network=network.name)
        boot(result, vm)
        result.step("interface with addresses", guest_addresses, vm)
        result.step("guest: links", vm.shell, GUEST_LINKS)
        result.step("guest: address on eth1", vm.shell, "ip addr add 10.20.0.7/24 dev eth1; echo set")
        result.step("guest pings a peer in the secondary network", guest_ping, vm, "10.20.0.1")
        result.step("links in the pod", network.links_inside)
        result.record("running_status", status(vm.latest))
        end_by_deletion(result, vm)
        return vm


@scenario(
    "a masquerade interface whose pod link does not exist", "the VMI fails, with the reason in an event"
)
def missing_pod_link(session, result):
    with PodNetwork("nolink", host=8) as network:
        network.unplug("eth0")
        vm = session.vm(
            "missing-pod-link",
            change=lambda vmi: interface(vmi, "default", "masquerade", {"pod": {}}),
            network=network.name,
        )
        result.step(
            "Synchronized False or a final phase",
            vm.wait,
            "Synchronized",
            lambda vmi: (
                any(c["type"] == "Synchronized" for c in vmi["status"].get("conditions", []))
                or phase(vmi) == "Failed"
            ),
            60,
            0,
        )
        time.sleep(4)
        result.record("phase", phase(vm.latest))
        end_by_deletion(result, vm)
        return vm
