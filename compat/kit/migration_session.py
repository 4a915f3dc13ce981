"""Two nodes, with one launcher or two: starts what a cluster would have there, and runs the migration scenarios.

python3 -m kit.migration_session DESCRIPTION DESCRIPTION [SCENARIO...]      inside enter-cluster, by compat/run
"""

import json
import os
import re
import shutil
import sys
import threading
import time
import uuid

from kit import certificates, conditions, kube, launcher, objects, registry, settings
from kit.apiserver_process import ApiServer
from kit.controller import Controller
from kit.kube import condition
from kit.migration import CONFIGURATION, TARGET_LABEL, Migration
from kit.normalize import distinct, plain, status, without_addresses
from kit.remote_node import RemoteNode, RemotePod
from kit.result import Result
from kit.runner import Runner
from kit.session import is_schedulable
from kit.virt_handler import json_lines
from kit.vm import VM
from kit.wait import until

NAMES = ("node01", "node02")
FOLLOWED_CONDITIONS = ("LiveMigratable", "Paused", "AgentConnected")
TICKS = re.compile(r"tick-\d+\.\n?")
CLAIMS = settings.SHARED + "/claims"
# A binding plugin whose CNI plugin makes a tap. The guest's link goes down and up at the target.
NETWORK = {"binding": {"tap": {"domainAttachmentType": "tap", "migration": {"method": "link-refresh"}}}}


class MigratingVM(VM):
    """Starts on the first node. With a claim its disk is the same file on both nodes (ReadWriteMany), and so is its
    state, if it has any. `target_options`: what differs for the target's pod.

    start_attachment_pod  makes the attachment pod for the volumes that are hotplugged now: node -> pod
    """

    def __init__(self, session, name, grace=30, change=None, claim=True, target_options=None, **options):
        self.options, self.home = options, session.nodes[0]
        self.target_options, self.start_attachment_pod = target_options or {}, None
        self.state_claim = f"persistent-state-for-{name}" if options.get("state") else None
        if self.state_claim:
            shared_folder(self.state_claim)

        def prepare(vmi):
            vmi["spec"]["evictionStrategy"] = "LiveMigrate"
            vmi["status"]["activePods"] = {str(uuid.uuid4()): self.home.name}
            if claim:
                shared_disk(vmi, name)
            if change:
                change(vmi)

        super().__init__(session, name, grace, prepare, **options)
        self.address = self.home.address
        self.records = [self.record]

    def start_pod(self, options):
        (uid,) = self.vmi["status"]["activePods"]
        return RemotePod(self.home, self.vmi, self.log, uid=uid, **options)

    def shell(self, command, timeout=15):
        """Without what the ticker of the scenarios prints meanwhile."""
        return TICKS.sub("", super().shell(command, timeout)).strip()

    def follow(self, node):
        """The console and the REST calls go to that node from now on."""
        if self.socket:
            self.socket.close()
        self.socket, self.home, self.address = None, node, node.address

    def migration_state(self):
        return self.status.get("migrationState") or {}

    def discard(self):
        if self.socket:
            self.socket.close()
        if kube.get_or_none(self.path):
            self.delete()
            if not self.is_gone(10):
                for record in self.records:
                    if record.pod.poll() is None:
                        record.pod.kill()
                self.is_gone(20)
        self.recorder.stopped = True
        for claim in (self.name, self.state_claim):
            if claim:
                shutil.rmtree(f"{CLAIMS}/{claim}", ignore_errors=True)

    def is_gone(self, timeout):
        try:
            return bool(self.gone(timeout))
        except TimeoutError:
            return False


def shared_folder(claim):
    """The folder of a claim that both nodes see."""
    folder = f"{CLAIMS}/{claim}"
    os.makedirs(folder)
    os.chown(folder, 0, 107)
    os.chmod(folder, 0o2777)
    return folder


def shared_disk(vmi, claim):
    folder = shared_folder(claim)
    shutil.copyfile(settings.GUEST, folder + "/disk.img")
    vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = claim
    vmi["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"].update(
        claimName=claim, accessModes=["ReadWriteMany"]
    )


class MigrationResult(Result):
    def __init__(self, session, name):  # the logs are those of two virt-handlers
        self.session, self.name = session, name
        self.start = time.time()
        self.data = {"steps": [], "failed": []}
        self.log_marks = {node.name: node.handler.log_size() for node in session.nodes}
        self.migrations = []

    def migrate(self, vm, target, **configuration):
        migration = Migration(vm, target, **configuration)
        self.migrations.append(migration)
        return migration

    def finish(self, vm=None):
        if vm:
            self.data["status"] = status(vm.latest)
            self.data["labels"] = vm.latest.get("metadata", {}).get("labels")
            self.data["events"] = [
                [
                    event["type"],
                    event["reason"],
                    without_addresses(plain(event["message"])),
                    event.get("count", 1),
                    event["source"].get("component"),
                    event["source"].get("host"),
                ]
                for event in vm.recorder.events()
            ]
            self.data["phases"] = vm.recorder.phases()
            self.data[conditions.KEY] = vm.recorder.condition_timeline()
            self.data["migration_state"] = state_changes(vm)
            self.data["migration_phases"] = [migration.phases for migration in self.migrations]
            self.data["pods"] = [
                {
                    "node": record.pod.node.name,
                    "notes": record.notes,
                    "exit": record.exit_code,
                    "log": distinct(json_lines(record.pod.log)),
                }
                for record in vm.records
            ]
        self.data["handler_log"] = {
            node.name: [
                without_addresses(line)
                for line in distinct(node.handler.log_lines(self.log_marks[node.name]))
            ]
            for node in self.session.nodes
        }
        self.data["seconds"] = round(time.time() - self.start, 1)


def state_changes(vm):
    """[seconds, what changed] of status.migrationState and of the fields beside it, version by version."""
    out, last = [], {}
    for seconds, _, vmi in list(vm.recorder.versions):
        current = migration_fields(vmi)
        changed = {
            key: plain(json.dumps(current.get(key)))
            for key in sorted(set(current) | set(last))
            if current.get(key) != last.get(key)
        }
        if changed:
            out.append([seconds, changed])
        last = current
    return out


def migration_fields(vmi):
    found, labels = vmi["status"], vmi["metadata"]["labels"]
    out = {
        f"migrationState.{key}": value
        for key, value in (found.get("migrationState") or {}).items()
        if key != "migrationConfiguration"
    }
    for key in ("nodeName", "launcherContainerImageVersion", "migrationMethod"):
        out[key] = found.get(key)
    out["activePods"] = sorted((found.get("activePods") or {}).values())
    out["label nodeName"] = labels.get("kubevirt.io/nodeName")
    out["label migrationTargetNodeName"] = labels.get(TARGET_LABEL)
    for kind in FOLLOWED_CONDITIONS:
        present = condition(vmi, kind)
        if present:
            out[f"condition {kind}"] = present["status"]
    return out


class MigrationSession(Runner):
    def __init__(self, descriptions):
        self.launchers = [launcher.read(path) for path in descriptions]
        names = dict.fromkeys(each.name for each in self.launchers)
        self.folder = f"{settings.RESULTS}/" + "+".join(names)
        os.makedirs(self.folder, exist_ok=True)
        os.makedirs(CLAIMS, exist_ok=True)
        self.vms = []
        certificates.make(settings.CERTIFICATES)
        self.api = ApiServer(self.folder + "/apiserver-two-nodes.log")
        objects.create_cluster(
            settings.HANDLER_VERBOSITY, nodes=NAMES, migrations=CONFIGURATION, network=NETWORK
        )
        self.nodes = [
            RemoteNode(index, name, path, self.folder)
            for index, (name, path) in enumerate(zip(NAMES, descriptions, strict=True))
        ]
        self.prepare_nodes()
        self.controller = Controller()
        for name in NAMES:
            until(f"label kubevirt.io/schedulable of {name}", lambda name=name: is_schedulable(name), 30)

    def prepare_nodes(self):
        """Both at once: each takes many seconds."""
        errors = []

        def prepare(node):
            try:
                node.prepare()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [threading.Thread(target=prepare, args=(node,)) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def new_result(self, name):
        return MigrationResult(self, name)

    def finish(self, result, vm):
        """The record has the ends of all pods, so the VM goes first."""
        if vm:
            vm.discard()
        result.finish(vm)
        for migration in result.migrations:
            migration.done.set()
        if vm:
            codes = [record.exit_code for record in vm.records]
            print(f"  the pods' exit statuses are {codes}, {result.data['seconds']} s", flush=True)

    def revive_handlers(self, result):
        for node in self.nodes:
            code = node.call("handler_exit_code")
            if code is not None:
                result.data["failed"].append(f"virt-handler of {node.name} ended with {code}")
                node.call("start_handler", log=node.log)

    def stop(self):
        for node in self.nodes:
            node.call("stop")


if __name__ == "__main__":
    MigrationSession(sys.argv[1:3]).run_all(registry.choose(sys.argv[3:], registry.TWO_NODES))
