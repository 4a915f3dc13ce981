"""A hook sidecar of a launcher's pod: the container that virt-controller adds for hooks.kubevirt.io/hookSidecars, with
KubeVirt's sidecar-shim (or the launcher's own one), which calls a program for each hook."""

import os

from kit.container import Container, non_root_identity
from kit.image import USER

PROGRAM = "/usr/bin/sidecar-shim"
SOCKETS = "/var/run/kubevirt-hooks"
ANNOTATION = "hooks.kubevirt.io/hookSidecars"


class Sidecar(Container):
    """`on_define_domain`: the text of the program of this name. It gets `--vmi JSON --domain XML` and prints the domain;
    it may append a line for each call to $CALLS."""

    def __init__(self, pod, sockets, index, on_define_domain):
        name = f"hook-sidecar-{index}"
        own = f"{sockets}/{name}"  # virt-controller's subPath
        os.makedirs(own)
        os.chown(own, 0, USER)
        os.chmod(own, 0o2777)
        self.notes = f"{pod.folder}/{name}"
        os.makedirs(self.notes)
        os.chmod(self.notes, 0o777)
        program = pod.pod_file(f"{name}-program", on_define_domain)
        os.chmod(program, 0o755)
        super().__init__(
            f"{pod.name}-{name}",
            pod.image,
            [PROGRAM, "--version", "v1alpha3"],
            cgroup=f"{pod.uid}-{name}",
            volumes=[
                (own, SOCKETS, ""),
                (self.notes, "/notes", ""),
                (program, "/usr/bin/onDefineDomain", "ro"),
            ],
            environment={"CALLS": "/notes/calls"},
            identity=non_root_identity(),
            log=pod.log + f".{name}",
            hostname=pod.hostname,
        )

    def calls(self):
        try:
            with open(self.notes + "/calls") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []
