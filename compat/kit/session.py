"""One node with one launcher: starts what a cluster would have there, and runs scenarios.

python3 -m kit.session DESCRIPTION [SCENARIO...]        inside enter-node, by compat/run
"""

import os
import sys

from kit import certificates, kube, launcher, objects, registry, settings
from kit.apiserver_process import ApiServer
from kit.controller import Controller
from kit.image import Image
from kit.result import Result
from kit.runner import Runner
from kit.virt_handler import VirtHandler, label_node
from kit.vm import VM
from kit.wait import until

FEATURE_GATES = ("VMStatsCollector", "Root")
# A binding plugin whose CNI plugin makes a tap.
NETWORK = {"binding": {"tap": {"domainAttachmentType": "tap"}}}


class Session(Runner):
    def __init__(self, description):
        self.launcher = launcher.read(description)
        self.launchers = [self.launcher]
        self.folder = f"{settings.RESULTS}/{self.launcher.name}"
        os.makedirs(self.folder, exist_ok=True)
        self.vms = []
        self.image = Image(self.launcher)
        certificates.make(settings.CERTIFICATES)
        certificates.install(settings.CERTIFICATES)
        print("node labeller:", label_node(self.image, self.folder + "/labeller.log"), flush=True)
        self.api = ApiServer(self.folder + "/apiserver.log")
        objects.create_cluster(settings.HANDLER_VERBOSITY, gates=FEATURE_GATES, network=NETWORK)
        log = self.folder + "/virt-handler.log"
        if os.path.exists(log):
            os.unlink(log)
        self.handler = VirtHandler(log).start()
        self.controller = Controller()
        until("the node's label kubevirt.io/schedulable", lambda: is_schedulable(settings.NODE_NAME), 30)

    def vm(self, name, **options):
        return VM(self, name, **options)

    def new_result(self, name):
        return Result(self, name)

    def finish(self, result, vm):
        result.finish(vm)
        if vm:
            print(f"  the pod's exit status is {vm.record.exit_code}, {result.data['seconds']} s", flush=True)

    def revive_handlers(self, result):
        if self.handler.process.poll() is not None:
            result.data["failed"].append(f"virt-handler ended with {self.handler.process.returncode}")
            self.handler.start()

    def stop(self):
        self.handler.stop()


def is_schedulable(node):
    return "kubevirt.io/schedulable" in kube.get("/api/v1/nodes/" + node)["metadata"]["labels"]


if __name__ == "__main__":
    Session(sys.argv[1]).run_all(registry.choose(sys.argv[2:], registry.ONE_NODE))
