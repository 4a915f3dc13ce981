"""How many VMs the scheduler puts on a node: the count of docs/density.md."""

import json
import time
from contextlib import contextmanager
from urllib.parse import quote

from cluster.build import PAUSE
from cluster.vm import pods_path
from kit import kube
from kit.kube import phase
from kit.registry import CLUSTER, scenario
from kit.wait import until

MIB = 1 << 20
LEFT = 3072 * MIB  # of the node's memory
GUEST = 128  # MiB; it stays in its firmware, so that two processors carry all of them
MORE_THAN_FIT = 20
REQUEST = GUEST + 160 + 2 + 1  # as docs/density.md says, for one CPU
SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": MIB, "Gi": 1 << 30}


@scenario(
    f"{MORE_THAN_FIT} VMs of {GUEST} MiB are created on a node with 3 GiB left: "
    "with what KubeVirt reserves, then with the request of docs/density.md",
    "more VMs run with the request, and all run on",
    place=CLUSTER,
    default=False,
)
def full_node(session, result):
    reserved = {"requests": {"memory": f"{GUEST}Mi", "cpu": "1m"}}
    requested = {"overcommitGuestOverhead": True, "requests": {"memory": f"{REQUEST}Mi", "cpu": "1m"}}
    with filler(session):
        for name, resources in (("reserved", reserved), ("requested", requested)):
            with vmis(session, name, resources) as names:
                result.step(f"{name}: VMs", settled, session, names)
                result.step(f"{name}: a pod's request in MiB", pod_request, session, names[0])
                time.sleep(60)
                result.step(f"{name}: VMs after a minute", counts, session, names)
                result.step(f"{name}: working sets in MiB", working_sets, session, measured=True)


@contextmanager
def filler(session):
    """A pod that requests all of the node's memory but LEFT."""
    node = kube.get(f"/api/v1/nodes/{session.node}")
    fields = f"spec.nodeName={session.node},status.phase!=Succeeded,status.phase!=Failed"
    selector = "fieldSelector=" + quote(fields)
    requested = sum(request_of(pod) for pod in kube.get(f"/api/v1/pods?{selector}")["items"])
    size = bytes_of(node["status"]["allocatable"]["memory"]) - requested - LEFT
    container = {
        "name": "filler",
        "image": PAUSE,
        "resources": {"requests": {"memory": str(size)}},
    }
    spec = {"containers": [container], "nodeName": session.node, "terminationGracePeriodSeconds": 0}
    path = pods_path(session.namespace)
    kube.create(path, {"metadata": {"name": "filler"}, "spec": spec})
    try:
        until("the filler", lambda: phase(kube.get(f"{path}/filler")) == "Running", 60)
        yield
    finally:
        kube.delete(f"{path}/filler")


@contextmanager
def vmis(session, name, resources):
    names = [f"{name}-{index:02}" for index in range(MORE_THAN_FIT)]
    domain = {
        "cpu": {"cores": 1},
        "memory": {"guest": f"{GUEST}Mi"},
        "resources": resources,
        "devices": {"autoattachPodInterface": False},
    }
    spec = {
        "domain": domain,
        "nodeSelector": {"kubernetes.io/hostname": session.node},
        "terminationGracePeriodSeconds": 0,
        "evictionStrategy": "None",
    }
    path = kube.vmi_path(session.namespace)
    try:
        for each in names:
            vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": spec}
            kube.create(path, {**vmi, "metadata": {"name": each}})
        yield names
    finally:
        kube.delete(path)
        until("no VM", lambda: not kube.get(path)["items"], 300)


def settled(session, names):
    """The counts once each VM runs or has no place."""

    def every_one():
        found = counts(session, names)
        return found if found["run"] + found["have no place"] == len(names) else None

    return until("each VM to run or to have no place", every_one, 900, 2)


def counts(session, names):
    vmis = {vmi["metadata"]["name"]: vmi for vmi in kube.get(kube.vmi_path(session.namespace))["items"]}
    found = [vmis.get(name) for name in names]
    return {
        "run": sum(phase(vmi) == "Running" for vmi in found if vmi),
        "have no place": sum("Insufficient memory" in json.dumps(vmi["status"]) for vmi in found if vmi),
    }


def pod_request(session, name):
    selector = f"labelSelector=vm.kubevirt.io%2Fname%3D{name}"
    (pod,) = kube.get(f"{pods_path(session.namespace)}?{selector}")["items"]
    return request_of(pod) // MIB


def working_sets(session):
    """Least and most of each container of the VMs' pods, by the kubelet, with the guest's memory."""
    summary = kube.get(f"/api/v1/nodes/{session.node}/proxy/stats/summary")
    found = {}
    for pod in summary["pods"]:
        if pod["podRef"]["name"].startswith("virt-launcher-"):
            for container in pod["containers"]:
                found.setdefault(container["name"], []).append(container["memory"]["workingSetBytes"])
    return {name: [round(f(sizes) / MIB, 1) for f in (min, max)] for name, sizes in found.items()}


def request_of(pod):
    """As the scheduler counts: containers, and the init containers that stay."""
    spec = pod["spec"]
    staying = [each for each in spec.get("initContainers", []) if each.get("restartPolicy") == "Always"]
    requests = [each.get("resources", {}).get("requests", {}) for each in spec["containers"] + staying]
    return sum(bytes_of(each.get("memory", "0")) for each in requests)


def bytes_of(text):
    digits = text.rstrip("KMGi")
    return int(digits) * SIZES[text[len(digits) :]]
