"""CLUSTER_DIR: the folder with a cluster's programs and its state. Nothing of it belongs to this project."""

import os
import shutil

PROGRAMS = {  # in bin/ -> what it is built from or comes from
    "kube-apiserver": "Kubernetes 1.34",
    "kube-controller-manager": "Kubernetes 1.34",
    "kube-scheduler": "Kubernetes 1.34",
    "kubelet": "Kubernetes 1.34",
    "kubectl": "Kubernetes",
    "etcd": "etcd 3.5",
    "containerd": "containerd 2.1",
    "containerd-shim-runc-v2": "containerd 2.1",
    "ctr": "containerd 2.1",
    "runc": "runc 1.1",
}
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")  # in cni/
KUBEVIRT_PROGRAMS = (
    "virt-operator",
    "virt-api",
    "virt-controller",
    "virt-handler",
    "virt-chroot",
    "virt-exportproxy",
)
MANIFESTS = ("release/kubevirt-operator.yaml.in", "generated/kv-resource.yaml")  # in manifests/
TOOLS = {  # of this machine -> Debian's package
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
    "openssl": "openssl",
    "gcc": "gcc",
    "tar": "tar",
    "mtype": "mtools",
    "mcopy": "mtools",
}
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")


class Folder:
    """Paths in CLUSTER_DIR."""

    def __init__(self, path):
        self.path = os.path.realpath(path)

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def make(self, name):
        """A folder in it, made where it is missing."""
        os.makedirs(self / name, exist_ok=True)
        return self / name

    def read(self, name):
        """The text of a file; None without it."""
        try:
            with open(self / name) as f:
                return f.read()
        except FileNotFoundError:
            return None

    def write(self, name, text):
        with open(self / name, "w") as f:
            f.write(text)

    def missing(self):
        """What has to be there before a cluster can start; one line each."""
        if os.geteuid() != 0:
            yield "root: namespaces, mounts and cgroups are made"
        for name, origin in PROGRAMS.items():
            if not is_program(self / f"bin/{name}"):
                yield f"{name} in {self / 'bin'} ({origin})"
        for name in CNI_PLUGINS:
            if not is_program(self / f"cni/{name}"):
                yield f"{name} in {self / 'cni'} (CNI plugins 1.x)"
        for name in KUBEVIRT_PROGRAMS:
            if not is_program(self / f"kubevirt/{name}"):
                yield f"{name} in {self / 'kubevirt'} (KubeVirt's source: go build ./cmd/{name})"
        for name in MANIFESTS:
            if not os.path.exists(self / f"manifests/{name}"):
                yield f"{self / 'manifests'}/{name} (KubeVirt's source, the folder manifests)"
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        for program, package in TOOLS.items():
            if not shutil.which(program, path=path):
                yield f"the program {program}, in Debian's package {package}"
        for name in HIERARCHIES:
            if not os.path.isdir(f"/sys/fs/cgroup/{name}"):
                yield f"cgroup v1's hierarchy {name} at /sys/fs/cgroup"


def is_program(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)
