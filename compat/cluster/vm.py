"""A VM of a scenario in the cluster: virt-controller makes its pod, and a kubelet runs it."""

import json
import subprocess
import threading
import time
import urllib.parse

from cluster.build import GUEST
from kit import kube, objects, settings
from kit.launcher_pod import LIBVIRT
from kit.recorder import Recorder
from kit.vm import VM
from kit.wait import until

COMPUTE = "compute"


class ClusterVM(VM):
    """In the session's namespace, for the session's node. `change` edits the VMI before. Without `create`, somebody else
    creates the VMI."""

    def __init__(self, session, name, grace=30, change=None, node=None, create=True):
        self.session, self.name, self.namespace = session, name, session.namespace
        self.vmi = manifest(name, self.namespace, node or session.node, grace)
        if change:
            change(self.vmi)
        self.vmi.pop("status")
        self.log = f"{session.folder}/launcher-{name}.log"
        self.path = kube.vmi_path(self.namespace, name)
        self.address = settings.NODE_ADDRESS
        self.socket = None
        self.recorder = Recorder(self.namespace, name)
        self.start = time.time()
        self.pod = self.record = Pods(self)
        if create:
            kube.create(kube.vmi_path(self.namespace), self.vmi)
        session.vms.append(self)

    def node(self):
        return self.status.get("nodeName")

    def running(self, timeout=180):
        return super().running(timeout)

    def agent_connected(self, timeout=120):
        return super().agent_connected(timeout)


class Pods:
    """The launcher pods of a VM: what becomes of them, and the log of the first one's container."""

    def __init__(self, vm):
        self.vm = vm
        self.begin = time.time()
        self.notes = []  # (seconds, what happened)
        self.exit_codes = {}  # pod -> exit status of its compute container
        self.followed = set()
        self.stopped = False
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        selector = urllib.parse.quote(f"vm.kubevirt.io/name={self.vm.name}")
        path = f"{pods_path(self.vm.namespace)}?watch=true&labelSelector={selector}"
        while not self.stopped:
            try:
                with kube.open_url(path, 3600) as response:
                    for line in response:
                        self.see(json.loads(line))
                        if self.stopped:
                            return
            except OSError:  # the API server is away
                time.sleep(1)

    def see(self, event):
        pod = event["object"]
        name, status = pod["metadata"]["name"], pod.get("status", {})
        text = " ".join(
            [
                status.get("phase", ""),
                *(["deleting"] if pod["metadata"].get("deletionTimestamp") else []),
                *(["gone"] if event["type"] == "DELETED" else []),
            ]
        )
        if not self.notes or self.notes[-1][1:] != (name, text):
            self.notes.append((round(time.time() - self.begin, 2), name, text))
        for container in status.get("containerStatuses", []):
            ended = container["state"].get("terminated")
            if container["name"] == COMPUTE and ended:
                self.exit_codes[name] = ended["exitCode"]
            if container["name"] == COMPUTE and "running" in container["state"] and name not in self.followed:
                self.followed.add(name)
                self.follow(name)

    def follow(self, name):
        """Copies the container's log while it grows: it is gone with the pod."""
        with open(self.vm.log, "ab" if len(self.followed) > 1 else "wb") as log:
            command = ["logs", "-f", name, "-c", COMPUTE]
            subprocess.Popen(self.vm.session.kubectl_command(*command), stdout=log, stderr=log)

    # ---- what Result and Runner ask

    @property
    def exit_code(self):
        """Of the pod that ended last; None before."""
        return list(self.exit_codes.values())[-1] if self.exit_codes else None

    @property
    def ended(self):
        return bool(self.exit_codes)

    @property
    def gone(self):
        return kube.get_or_none(self.vm.path) is None and not self.living()

    def tree(self):
        """No process of a pod outlives it here: the kubelet has ended its cgroup."""
        return []

    def kill(self):
        for name in self.living():
            kube.call("DELETE", f"{pods_path(self.vm.namespace)}/{name}", {"gracePeriodSeconds": 0})

    # ---- for scenarios

    def living(self):
        """Names of the pods that are there."""
        selector = urllib.parse.quote(f"vm.kubevirt.io/name={self.vm.name}")
        found = kube.get(f"{pods_path(self.vm.namespace)}?labelSelector={selector}")["items"]
        return [each["metadata"]["name"] for each in found]

    def current(self):
        """The name of the pod in which the VM runs."""
        uid = next(
            (uid for uid, node in self.vm.status["activePods"].items() if node == self.vm.node()), None
        )
        selector = urllib.parse.quote(f"vm.kubevirt.io/name={self.vm.name}")
        found = kube.get(f"{pods_path(self.vm.namespace)}?labelSelector={selector}")["items"]
        return next(each["metadata"]["name"] for each in found if each["metadata"]["uid"] == uid)

    def execute(self, *command, timeout=60):
        """`kubectl exec` in the compute container: exit status and output."""
        arguments = self.vm.session.kubectl_command("exec", self.current(), "-c", COMPUTE, "--", *command)
        done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", timeout=timeout)
        return {"exit": done.returncode, "output": (done.stdout + done.stderr).strip()}

    def virsh(self, verb, *arguments):
        """virsh in the compute container, about the VM's domain: exit status and output."""
        domain = f"{self.vm.namespace}_{self.vm.name}"
        return self.execute("virsh", "-c", LIBVIRT, verb, domain, *arguments)

    def until_gone(self, timeout=90):
        until("the pods are gone", lambda: not self.living(), timeout, 0.5)


def pods_path(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def manifest(name, namespace, node, grace):
    """The kit's VMI as a user writes it: its disk is a container disk, and the scheduler is told the node."""
    vmi = objects.vmi(name, grace=grace)
    vmi["metadata"] = {"name": name, "namespace": namespace}
    del vmi["spec"]["domain"]["cpu"]["model"]  # the nodes have no label for it
    vmi["spec"]["volumes"] = [
        {"name": "rootdisk", "containerDisk": {"image": GUEST, "imagePullPolicy": "IfNotPresent"}}
    ]
    if node:
        vmi["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return vmi
