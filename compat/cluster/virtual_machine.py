"""A VirtualMachine of a scenario in the cluster."""

from kit import kube, rest
from kit.wait import until


class Machine:
    """A VirtualMachine with the name and the spec of `vm`, which follows its VMI."""

    def __init__(self, vm, strategy):
        self.vm = vm
        self.path = vm_path(vm.namespace, vm.name)
        kube.create(
            vm_path(vm.namespace),
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "metadata": {"name": vm.name},
                "spec": {"runStrategy": strategy, "template": {"spec": vm.vmi["spec"]}},
            },
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Deletes it after a failed scenario too: its controller would make another VMI."""
        if kube.get_or_none(self.path):
            self.delete()

    def put(self, subresource, body=None):
        path = rest.path("virtualmachines", self.vm.namespace, self.vm.name, subresource)
        code, answer = rest.request("PUT", path, body or {}, address=self.vm.address)
        return f"{code} {answer.decode(errors='replace')}".strip()

    def shown(self, text, timeout=60):
        """`status.printableStatus`, what `kubectl get vm` prints."""
        return until(f"status {text}", lambda: self.status() == text, timeout)

    def status(self):
        return kube.get(self.path).get("status", {}).get("printableStatus")

    def patch(self, spec):
        kube.call("PATCH", self.path, {"spec": spec}, "application/merge-patch+json")

    def delete(self):
        kube.delete(self.path)

    def end(self, result):
        self.delete()
        result.step("gone", until, "the VM is gone", lambda: kube.get_or_none(self.path) is None, 90)


def vm_path(namespace, name=""):
    return f"{kube.KUBEVIRT}/namespaces/{namespace}/virtualmachines/{name}".rstrip("/")
