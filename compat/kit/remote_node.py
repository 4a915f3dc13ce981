"""The driver's side of a node of two, and of the pods on it."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid

from kit import settings
from kit.virt_handler import VirtHandler
from kit.wait import until

KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CALL_TIMEOUT = 150  # seconds
# Set by enter-cluster and the driver, and different in a node.
NOT_INHERITED = ("COMPAT_STAGE",)


class RemoteNode:
    """A node below this machine: enter-node in a network namespace of its own, joined to the others by the bridge."""

    def __init__(self, index, name, description, folder):
        self.name, self.folder = name, folder
        self.address = f"10.245.0.{10 + index}"
        self.socket = f"{settings.SHARED}/{name}.sock"
        self.log = f"{folder}/virt-handler-{name}.log"
        for command in (
            f"ip netns add {name}",
            f"ip link add v-{name} type veth peer name eth0 netns {name}",
            f"ip link set v-{name} master br0 up",
            f"ip -n {name} addr add {self.address}/24 dev eth0",
            f"ip -n {name} link set eth0 up",
        ):
            subprocess.run(command.split(), check=True)
        if os.path.exists(self.log):
            os.unlink(self.log)
        self.handler = VirtHandler(self.log)  # to read the log only
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        environment.update(
            COMPAT_SCRATCH=f"{settings.SCRATCH}/{name}",
            NODE_NAME=name,
            NODE_ADDRESS=self.address,
            NODE_NETWORK="keep",
            COMPAT_BINDS=f"{os.environ['COMPAT_BINDS']}:{settings.SHARED}",
        )
        os.makedirs(f"{settings.SCRATCH}/{name}", exist_ok=True)
        self.process = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                name,
                f"{KIT}/enter-node",
                sys.executable,
                "-m",
                "kit.node_agent",
                description,
                self.socket,
            ],
            stdin=subprocess.DEVNULL,
            stdout=open(f"{folder}/node-{name}.log", "w"),
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=KIT,
        )
        until(name, self.serving, 30)

    def serving(self):
        if self.process.poll() is not None:
            raise RuntimeError(
                f"{self.name} ended with {self.process.returncode}, see {self.folder}/node-{self.name}.log"
            )
        return os.path.exists(self.socket)

    def call(self, function, /, **arguments):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CALL_TIMEOUT)
            connection.connect(self.socket)
            connection.sendall(json.dumps({"call": function, "arguments": arguments}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {function}: {answer['error']}\n{answer['trace']}")
        return answer["ok"]

    def prepare(self):
        self.call("prepare", folder=self.folder)
        self.call("start_handler", log=self.log)


class RemotePod:
    """A launcher's pod on one of the nodes; has the methods of kit.launcher_pod.LauncherPod that are asked for."""

    def __init__(self, node, vmi, log, uid=None, **options):
        self.node, self.uid, self.log = node, uid or str(uuid.uuid4()), log
        if os.path.exists(log):
            os.unlink(log)
        self.name = node.call("start_pod", vmi=vmi, uid=self.uid, log=log, options=options)

    def pod(self, method, *arguments):
        return self.node.call("pod", uid=self.uid, method=method, arguments=arguments)

    def poll(self):
        return self.pod("poll")

    def signal(self, number):
        self.pod("signal", int(number))

    def signal_processes(self, start, number):
        return self.pod("signal_processes", start, int(number))

    def kill(self):
        self.signal(signal.SIGKILL)

    def kill_launcher(self, number):
        return self.pod("kill_launcher", int(number))

    def tree(self):
        return self.pod("tree")

    def pids(self, start):
        return self.pod("pids", start)

    def guests(self):
        return self.pod("guests")

    def lives(self, pid):
        return self.pod("lives", pid)

    def remove_volumes(self):
        return self.pod("remove_volumes")

    def has_hotplugged(self, volume):
        return self.pod("has_hotplugged", volume)

    def vcpu_affinities(self):
        return self.pod("vcpu_affinities")

    def allowed_downtime(self):
        return self.pod("allowed_downtime")

    def hook_calls(self):
        return self.pod("hook_calls")

    def sidecar_exit_codes(self):
        return self.pod("sidecar_exit_codes")

    def save_core_files(self, folder):
        return self.pod("save_core_files", folder)

    def ready(self):
        """Whether the launcher's socket is there."""
        return "launcher-sock" in (
            self.node.call("list_folder", uid=self.uid, path="/var/run/kubevirt/sockets") or []
        )


class RemoteAttachmentPod:
    """kit.attachment_pod.AttachmentPod on one of the nodes; its claim is a folder that all nodes see."""

    def __init__(self, node, volume, claim_folder, log, size=64 << 20):
        self.node, self.volume, self.claim_folder = node, volume, claim_folder
        self.name, self.uid = node.call(
            "start_attachment_pod", volume=volume, log=log, size=size, shared=claim_folder
        )

    def remove(self):
        self.node.call("remove_attachment_pod", uid=self.uid)


class RemoteNetwork:
    """kit.pod_network.PodNetwork on one of the nodes, for the pod of this name's network namespace there."""

    def __init__(self, node, name, **options):
        self.node, self.name = node, name
        self.address = node.call("make_network", name=name, options=options)

    def call(self, method, *arguments):
        return self.node.call("network", name=self.name, method=method, arguments=arguments)

    def ping_from_node(self, address):
        return self.node.call("ping", address=address)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.node.call("remove_network", name=self.name)
