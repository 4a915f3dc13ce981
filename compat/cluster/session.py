"""Runs scenarios in the cluster, with one launcher.

python3 -m cluster.session CLUSTER_DIR NODE NAME [SCENARIO...]     in the control plane's network, by compat/run-cluster
"""

import json
import os
import re
import sys
import time

from cluster.cluster import Cluster
from cluster.folder import Folder
from cluster.virtual_machine import vm_path
from cluster.vm import ClusterVM, pods_path
from kit import kube, registry, settings
from kit.result import Result
from kit.runner import Runner
from kit.wait import until


class Session(Runner):
    """`node`: where its VMs start; `name`: of the launcher there."""

    def __init__(self, folder, node, name):
        self.cluster, self.node, self.name = Cluster(folder), node, name
        self.namespace = name.replace(".", "-")
        self.folder = f"{settings.RESULTS}/{name}"
        os.makedirs(self.folder, exist_ok=True)
        self.vms = []
        if kube.get_or_none(f"/api/v1/namespaces/{self.namespace}") is None:
            kube.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.remove_leftovers()
        self.handler = Handlers(self)

    def remove_leftovers(self):
        """Deletes the VMs that an earlier, killed run has left: this run's have the same names."""
        vmis = kube.vmi_path(self.namespace)
        kube.delete(vm_path(self.namespace))
        kube.delete(vmis)
        is_empty = lambda: not kube.get(vmis)["items"]  # noqa: E731
        until("no VM of an earlier run", is_empty, 120)

    def other_launcher(self):
        """The name of the other node's launcher; its own where both have one."""
        names = json.loads(self.cluster.folder.read("launchers.json")).values()
        return next((name for name in names if name != self.name), self.name)

    def vm(self, name, **options):
        return ClusterVM(self, name, **options)

    def kubectl_command(self, *arguments):
        kubeconfig = f"--kubeconfig={self.cluster.folder / 'pki/admin.kubeconfig'}"
        return [self.cluster.folder / "bin/kubectl", kubeconfig, "-n", self.namespace, *arguments]

    def new_result(self, name):
        return Result(self, name)

    def finish(self, result, vm):
        result.finish(vm)
        result.data = json.loads(self.without_places(json.dumps(result.data)))
        if vm:
            vm.pod.stopped = True
            print(f"  the pod's exit status is {vm.record.exit_code}, {result.data['seconds']} s", flush=True)

    def without_places(self, text):
        """Nodes and addresses by what they are for this launcher, so that two launchers' records compare."""
        text = text.replace(self.node, "<home>")
        text = re.sub(rf"\b{re.escape(self.namespace)}(?=[_-])", "<namespace>", text)
        text = re.sub(r"\bnode0\d\b", "<other>", text)
        return re.sub(r"\b10\.24[45]\.\d+\.\d+(:\d+)?", "<address>", text)

    def revive_handlers(self, result):
        """The kubelet does."""

    def stop(self):
        pass


class Handlers:
    """virt-handler's pods, and their logs."""

    def __init__(self, session):
        self.session = session

    def pod(self, node):
        """The pod's object."""
        found = kube.get(f"{pods_path('kubevirt')}?labelSelector=kubevirt.io%3Dvirt-handler")["items"]
        return next(each for each in found if each["spec"]["nodeName"] == node)

    def is_ready(self, node):
        pod = self.pod(node)
        statuses = pod["status"].get("containerStatuses", [])
        return (
            bool(statuses)
            and all(each["ready"] for each in statuses)
            and "deletionTimestamp" not in pod["metadata"]
        )

    def log_size(self):
        """A mark for `log_lines`: the time."""
        return time.time()

    def log_lines(self, since):
        """Of the node's virt-handler from then on."""
        name = self.pod(self.session.node)["metadata"]["name"]
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        with kube.open_url(
            f"{pods_path('kubevirt')}/{name}/log?container=virt-handler&sinceTime={begin}", 60
        ) as log:
            return list(parsed(log.read().decode(errors="replace").splitlines()))


def parsed(lines):
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            yield {"level": "raw", "msg": line}


if __name__ == "__main__":
    Session(Folder(sys.argv[1]), sys.argv[2], sys.argv[3]).run_all(
        registry.choose(sys.argv[4:], registry.CLUSTER)
    )
