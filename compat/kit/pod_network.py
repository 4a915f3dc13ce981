"""What CNI plugins do for a pod: a named network namespace with links to bridges of the node.

The bridges stand for the pod network ("pods": 10.244.0.1/24 and fd00:10:244::1/64) and for secondary networks, which
have no addresses on the node.
"""

import hashlib
import os
import subprocess

from kit.image import USER

POD_BRIDGE = "pods"
POD_GATEWAY = "10.244.0.1"
POD_GATEWAY_6 = "fd00:10:244::1"


def ip(*arguments, namespace=None):
    """Runs iproute2's ip, inside a named network namespace if one is given."""
    inside = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *inside, *arguments], check=True, capture_output=True, text=True)


def link_exists(name):
    return os.path.exists(f"/sys/class/net/{name}")


def make_bridge(name, addresses=()):
    """Makes a bridge of the node, unless it is there, and adds the addresses that it lacks."""
    if not link_exists(name):
        ip("link", "add", name, "type", "bridge")
        ip("link", "set", name, "mtu", "9000", "up")
        # The node answers for addresses that it has no route to, so that nothing waits for a DNS server
        # in vain.
        with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
            f.write("1")
    for address in addresses:
        ip("addr", "replace", address, "dev", name, *(["nodad"] if ":" in address else []))


def hashed_link(network):
    """The name that virt-controller gives the pod's link of a secondary network."""
    return "pod" + hashlib.sha256(network.encode()).hexdigest()[:11]


class PodNetwork:
    """A pod's network namespace. `ipv6`: the pod network has both address families."""

    count = 0

    def __init__(self, name, mtu=1500, ipv6=False, host=5):
        PodNetwork.count += 1
        self.index, self.links = PodNetwork.count, 0
        self.name, self.ipv6 = name, ipv6
        self.address, self.address_6 = f"10.244.0.{host}", f"fd00:10:244::{host:x}"
        make_bridge(POD_BRIDGE, [f"{POD_GATEWAY}/24", f"{POD_GATEWAY_6}/64"])
        ip("netns", "add", name)
        ip("link", "set", "lo", "up", namespace=name)
        self.plug("eth0", POD_BRIDGE, mac=f"02:00:00:00:00:{host:02x}", mtu=mtu)
        ip("addr", "add", f"{self.address}/24", "dev", "eth0", namespace=name)
        ip("route", "add", "default", "via", POD_GATEWAY, namespace=name)
        if ipv6:
            ip("addr", "add", f"{self.address_6}/64", "dev", "eth0", "nodad", namespace=name)
            ip("-6", "route", "add", "default", "via", POD_GATEWAY_6, namespace=name)

    def plug(self, link, to, mac, mtu=1500, addresses=()):
        """Another link of the pod, to a bridge of the node."""
        self.links += 1
        outside = f"v{self.index}-{self.links}"
        make_bridge(to)
        ip(
            "link",
            "add",
            outside,
            "mtu",
            str(mtu),
            "type",
            "veth",
            "peer",
            "name",
            link,
            "address",
            mac,
            "mtu",
            str(mtu),
            "netns",
            self.name,
        )
        ip("link", "set", outside, "master", to, "up")
        ip("link", "set", link, "up", namespace=self.name)
        for address in addresses:
            ip("addr", "add", address, "dev", link, namespace=self.name)

    def plug_tap(self, network, to, mac):
        """What the CNI plugin of a binding plugin with a tap does: the pod's link joined to a tap for the launcher."""
        link = hashed_link(network)
        tap = "tap" + link.removeprefix("pod")
        self.plug(link, to, mac)
        ip("link", "add", f"br-{network}", "type", "bridge", namespace=self.name)
        ip("tuntap", "add", tap, "mode", "tap", "user", str(USER), "group", str(USER), namespace=self.name)
        for port in (link, tap):
            ip("link", "set", port, "master", f"br-{network}", "up", namespace=self.name)
        ip("link", "set", f"br-{network}", "up", namespace=self.name)

    def unplug_tap(self, network):
        link = hashed_link(network)
        for name in (f"br-{network}", "tap" + link.removeprefix("pod"), link):
            self.unplug(name)

    def plug_network(self, network, to, mac):
        self.plug(hashed_link(network), to, mac)

    def unplug_network(self, network):
        """virt-handler's bridge binding has given the pod's link another name."""
        self.unplug(hashed_link(network).removeprefix("pod") + "-nic")

    def unplug(self, link):
        ip("link", "del", link, namespace=self.name)

    def links_inside(self):
        """Names of the links that are there, virt-handler's bridges and taps too."""
        out = subprocess.run(
            ["ip", "-n", self.name, "-br", "link"], capture_output=True, text=True, check=True
        ).stdout
        names = [line.split()[0].split("@")[0] for line in out.splitlines()]
        return sorted(name for name in names if not name.startswith("veth"))  # see kit.dummy_links

    def ping(self, address, size=56):
        """From the pod."""
        return ping(["ip", "netns", "exec", self.name], address, size)

    def run(self, command, timeout=30):
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return done.stdout + done.stderr

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        """Its links go with the pod's last process."""
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def ping(prefix, address, size=56):
    """Packets received of three; unfragmented, if they are larger than usual."""
    whole = ["-M", "do", "-s", str(size)] if size > 56 else []
    done = subprocess.run(
        [*prefix, "ping", "-c", "3", "-i", "0.2", "-W", "2", *whole, address],
        capture_output=True,
        text=True,
        check=False,
    )
    summary = next((line for line in done.stdout.splitlines() if "received" in line), done.stderr.strip())
    return summary.split(", ")[1] if "received" in summary else summary


def ping_from_node(address, size=56):
    return ping([], address, size)
