"""Pod networks: what virt-handler and the launcher set up between a pod's link and the guest."""

import subprocess
import time

from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.vm import VM


@scenario("masquerade on the pod's network", "")
def masquerade(session, result):
    def change(vmi):
        devices = vmi["spec"]["domain"]["devices"]
        devices.pop("autoattachPodInterface")
        devices["interfaces"] = [{"name": "default", "masquerade": {}, "model": "virtio"}]
        vmi["spec"]["networks"] = [{"name": "default", "pod": {}}]
        vmi["status"]["interfaces"] = [{"name": "default", "podInterfaceName": "eth0", "infoSource": "", "queueCount": 0}]
    name = "netvm"
    for command in (f"ip netns add {name}", f"ip link add veth-{name} type veth peer name eth0 netns {name}",
                    f"ip addr add 10.244.0.1/24 dev veth-{name}", f"ip link set veth-{name} up",
                    f"ip -n {name} addr add 10.244.0.5/24 dev eth0", f"ip -n {name} link set eth0 up",
                    f"ip -n {name} route add default via 10.244.0.1"):
        subprocess.run(command.split(), check=True)
    vm = VM(session, "masquerade", change=change, network=name)
    boot(result, vm)
    def address():
        vm.wait("interfaces", lambda vmi: any(i.get("ipAddress") and "guest-agent" in i.get("infoSource", "") for i in vmi["status"].get("interfaces", [])), 30, since=0)
        return vm.status["interfaces"]
    result.step("interface with addresses", address)
    time.sleep(12)
    result.step("guest: addresses", vm.shell, "ip -4 addr show eth0 | grep inet; ip route | head -2")
    result.step("ping the guest's pod address", lambda: subprocess.run(["ping", "-c", "2", "-W", "2", "10.244.0.5"], capture_output=True, text=True).stdout.splitlines()[-2])
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return vm
