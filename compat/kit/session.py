"""One node with one launcher: starts what a cluster would have there, and runs scenarios.

    python3 -m kit.session DESCRIPTION [SCENARIO...]        inside enter-node, by compat/run
"""

import json
import os
import sys

from kit import certificates, kube, launcher, objects, registry, settings
from kit.controller import Controller
from kit.image import Image
from kit.result import Result, StepFailed
from kit.services import ApiServer
from kit.virt_handler import VirtHandler, label_node
from kit.wait import until

FEATURE_GATES = ("VMStatsCollector", "Root")
# A binding plugin whose CNI plugin makes a tap.
NETWORK = {"binding": {"tap": {"domainAttachmentType": "tap"}}}


class Session:
    def __init__(self, description):
        self.launcher = launcher.read(description)
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

    def run(self, scenario):
        print(f"{scenario.name}: {scenario.does}", flush=True)
        result, before = Result(self, scenario.name), len(self.vms)
        vm, reason = None, scenario.lacks()
        if reason:
            result.skip(reason)
            result.write(self.folder)
            return result
        try:
            vm = scenario.run(self, result)
        except StepFailed:
            pass
        except Exception:  # noqa: BLE001 - the record says it, and the next scenario runs
            result.crashed()
        if vm is None and len(self.vms) > before:
            vm = self.vms[-1]
        result.finish(vm)
        for other in self.vms[before:]:
            other.discard()
        if vm:
            print(f"  the pod's exit status is {vm.record.exit_code}, {result.data['seconds']} s", flush=True)
        if self.handler.process.poll() is not None:
            result.data["failed"].append(f"virt-handler ended with {self.handler.process.returncode}")
            self.handler.start()
        result.write(self.folder)
        return result


def is_schedulable(node):
    return "kubevirt.io/schedulable" in kube.get("/api/v1/nodes/" + node)["metadata"]["labels"]


def main():
    description, names = sys.argv[1], sys.argv[2:]
    session = Session(description)
    failed = {}
    for scenario in registry.choose(names, nodes=1):
        result = session.run(scenario)
        if result.data["failed"]:
            failed[scenario.name] = result.data["failed"]
    session.handler.stop()
    print("failed steps:", json.dumps(failed, indent=1) if failed else "none", flush=True)


if __name__ == "__main__":
    main()
