"""The objects that a cluster would have: namespaces, nodes, the KubeVirt CR, CRDs, and VMIs."""

import uuid

from kit import certificates, kube
from kit.settings import CERTIFICATES, NODE_NAME

GUEST_MEMORY = "256Mi"
CUSTOM_RESOURCES = {
    "kubevirt.io": (
        "VirtualMachineInstance",
        "VirtualMachine",
        "KubeVirt",
        "VirtualMachineInstanceMigration",
    ),
    "backup.kubevirt.io": ("VirtualMachineBackup", "VirtualMachineBackupTracker"),
    "plugin.kubevirt.io": ("Plugin",),
}

KUBEVIRTS = kube.KUBEVIRT + "/namespaces/kubevirt/kubevirts"
KUBEVIRT_CR = KUBEVIRTS + "/kubevirt"


def create_cluster(verbosity, nodes=(NODE_NAME,), gates=(), **configuration):
    """`configuration`: further fields of the KubeVirt CR's spec.configuration."""
    for namespace in ("default", "kubevirt", "kube-system"):
        kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for name in nodes:
        kube.create("/api/v1/nodes", node(name))
    kube.create(
        "/api/v1/namespaces/kubevirt/configmaps",
        {
            "metadata": {"name": "kubevirt-ca", "namespace": "kubevirt"},
            "data": {"ca-bundle": certificates.authority(CERTIFICATES)},
        },
    )
    kube.create(
        KUBEVIRTS,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {
                "configuration": {
                    "developerConfiguration": {
                        "useEmulation": True,
                        "featureGates": ["ImageVolume", *gates],  # a default
                        "logVerbosity": {"virtHandler": verbosity, "virtLauncher": 2},
                    },
                    **configuration,
                }
            },
            "status": {"phase": "Deployed"},
        },
    )
    for group, kinds in CUSTOM_RESOURCES.items():
        for kind in kinds:
            plural = kind.lower() + "s"
            kube.create(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                {
                    "metadata": {"name": f"{plural}.{group}"},
                    "spec": {
                        "group": group,
                        "names": {"kind": kind, "plural": plural},
                        "scope": "Namespaced",
                        "versions": [{"name": "v1", "served": True, "storage": True}],
                    },
                },
            )


def node(name):
    resources = {"cpu": "2", "memory": "8Gi"}
    return {
        "metadata": {
            "name": name,
            "annotations": {},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64"},
        },
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": "amd64"},
            "allocatable": resources,
            "capacity": resources,
        },
    }


def claim_status(claim, size, access="ReadWriteOnce", mode="Filesystem", overhead="0.06"):
    """status.volumeStatus[].persistentVolumeClaimInfo as virt-controller writes it."""
    return {
        "claimName": claim,
        "accessModes": [access],
        "volumeMode": mode,
        "capacity": {"storage": size},
        "requests": {"storage": size},
        "filesystemOverhead": overhead,
    }


def vmi(name, pod_uid="", grace=30):
    """A VMI as virt-api and virt-controller leave it for virt-handler: defaults set, its pod scheduled and ready."""
    now = kube.now()
    topology = {"cores": 1, "sockets": 1, "threads": 1}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now,
            "generation": 1,
            "labels": {"kubevirt.io/nodeName": NODE_NAME},
            "annotations": {
                "kubevirt.io/latest-observed-api-version": "v1",
                "kubevirt.io/storage-observed-api-version": "v1",
            },
            "finalizers": ["foregroundDeleteVirtualMachine"],
        },
        "spec": {
            "architecture": "amd64",
            "terminationGracePeriodSeconds": grace,
            "evictionStrategy": "None",
            "domain": {
                "machine": {"type": "q35"},
                "cpu": {**topology, "model": "qemu64"},
                "firmware": {"uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name))},
                "memory": {"guest": GUEST_MEMORY},
                "features": {"acpi": {"enabled": True}},
                "resources": {"requests": {"memory": GUEST_MEMORY}},
                "devices": {
                    "autoattachPodInterface": False,
                    "disks": [{"name": "rootdisk", "disk": {"bus": "virtio"}}],
                },
            },
            "volumes": [{"name": "rootdisk", "persistentVolumeClaim": {"claimName": "root"}}],
        },
        "status": {
            "phase": "Scheduled",
            "nodeName": NODE_NAME,
            "activePods": {pod_uid: NODE_NAME},
            "runtimeUser": 107,
            "qosClass": "Burstable",
            "guestOSInfo": {},
            "migrationTransport": "Unix",
            "launcherContainerImageVersion": "test",
            "currentCPUTopology": topology,
            "memory": {
                "guestAtBoot": GUEST_MEMORY,
                "guestCurrent": GUEST_MEMORY,
                "guestRequested": GUEST_MEMORY,
            },
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "GuestNotRunning",
                    "message": "Guest VM is not reported as running",
                    "lastProbeTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "phaseTransitionTimestamps": [
                {"phase": phase, "phaseTransitionTimestamp": now}
                for phase in ("Pending", "Scheduling", "Scheduled")
            ],
            "volumeStatus": [
                {"name": "rootdisk", "target": "", "persistentVolumeClaimInfo": claim_status("root", "1Gi")}
            ],
        },
    }


def add_disk(vmi, name, volume, bus="virtio", kind="disk", claim=None, **disk):
    """Adds a disk, its volume and its status. `volume`: the volume's source, as in the API."""
    vmi["spec"]["domain"]["devices"]["disks"].append({"name": name, kind: {"bus": bus}, **disk})
    vmi["spec"]["volumes"].append({"name": name, **volume})
    status = {"name": name, "target": ""}
    if claim:
        status["persistentVolumeClaimInfo"] = claim
    vmi["status"]["volumeStatus"].append(status)
