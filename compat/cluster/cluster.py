"""The cluster as a whole: up from nothing or from a kept state, and down."""

import json
import os
import signal
import time

from cluster import build, kubevirt, pki
from cluster.machine import NODES, ControlPlane, Node
from kit.kube import is_true
from kit.wait import until

READY_TIMEOUT = 180  # seconds
AVAILABLE_TIMEOUT = 900
# The launcher that a node starts with: in each node another image may have this tag.
OWN_TAG = "own"
RESOURCE = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt"


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.control_plane = ControlPlane(folder)
        self.nodes = {name: Node(folder, name, self.control_plane) for name in NODES}

    def up(self, base, guest, launchers):
        """`launchers`: node -> launcher, which is the image with the tag "own" there, and whose sidecar-shim is the one there.
        Both nodes also have each launcher's image with its name as the tag."""
        pki.make(self.folder, NODES)
        builder = build.Builder(self.folder, base)
        say("images")
        components, named, own = list(builder.components(guest)), [], {}
        for name, launcher in launchers.items():
            by_name, *own[name] = builder.launcher(launcher, launcher.name, OWN_TAG)
            named.append(by_name)
        say("control plane")
        self.control_plane.start()
        until("the API server", lambda: self.raw("/readyz") == "ok", READY_TIMEOUT, 1)
        for name, node in self.nodes.items():
            say(name)
            node.start()
            until(
                "containerd",
                lambda node=node: "TYPE" in node.run(["ctr", "plugins", "ls"], check=False),
                READY_TIMEOUT,
            )
            for image in [*components, *named, *own[name]]:
                builder.load(node, image)
            until(f"{name} Ready", lambda name=name: self.is_ready(name), READY_TIMEOUT, 1)
        self.kubectl("label", "node", "node01", "node-role.kubernetes.io/control-plane=", "--overwrite")
        say("KubeVirt")
        self.apply(kubevirt.manifests(self.folder, OWN_TAG))
        self.apply(json.dumps(kubevirt.CDI_CONFIG_READERS))
        until("the KubeVirt resource", self.apply_settings, READY_TIMEOUT, 2)
        until("KubeVirt Available", self.is_available, AVAILABLE_TIMEOUT, 2)

    def is_ready(self, node):
        return is_true(self.get(f"/api/v1/nodes/{node}"), "Ready")

    def is_available(self):
        """The conditions alone are as old as a kept state: virt-api has to answer, and every pod to be ready."""
        found, pods = self.get(RESOURCE), self.get("/api/v1/namespaces/kubevirt/pods").get("items", [])
        return (
            bool(self.raw("/apis/subresources.kubevirt.io/v1"))
            and is_true(found, "Available")
            and not is_true(found, "Progressing")
            and all(is_true(pod, "Ready") for pod in pods if pod["status"]["phase"] != "Succeeded")
        )

    def set_launcher(self, tag):
        """As an operator does: virt-operator rolls the image out, the workload updater migrates the VMs."""
        image = kubevirt.image("virt-launcher", tag)
        self.kubectl(
            "-n", "kubevirt", "set", "env", "deployment/virt-operator", f"VIRT_LAUNCHER_IMAGE={image}"
        )
        until(
            "KubeVirt Available",
            lambda: self.has_rolled_out(image) and self.is_available(),
            AVAILABLE_TIMEOUT,
            2,
        )
        return True

    def has_rolled_out(self, image):
        """Whether virt-operator has installed KubeVirt with this launcher image."""
        status = self.get(RESOURCE).get("status", {})
        target = json.loads(status.get("targetDeploymentConfig") or "{}")
        installed = status.get("observedDeploymentID") == status.get("targetDeploymentID")
        return installed and target.get("virtLauncherImage") == image

    def pause_api_server(self, seconds):
        """Stops it for this time: nobody gets an answer, and its connections stay."""
        pids = self.control_plane.processes("kube-apiserver")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def apply_settings(self):
        """False until the API server knows the type."""
        try:
            self.apply(json.dumps(kubevirt.SETTINGS))
        except RuntimeError:
            return False
        return True

    def apply(self, text):
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)

    def raw(self, path):
        """The answer to a GET; empty where there is none."""
        return self.kubectl("get", "--raw", path, check=False)

    def get(self, path):
        """The object; an empty one where there is none."""
        return json.loads(self.raw(path) or "{}")

    def kubectl(self, *arguments, **options):
        kubeconfig = f"--kubeconfig={self.folder / 'pki/admin.kubeconfig'}"
        return self.control_plane.run([self.folder / "bin/kubectl", kubeconfig, *arguments], **options)

    def down(self):
        for node in self.nodes.values():
            node.stop()
        self.control_plane.stop()


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
