"""virt-controller's part of a migration, and the target's pod. See README.md, "What virt-controller writes".

The order and the fields are those of KubeVirt's pkg/virt-controller/watch/migration/migration.go.
"""

import threading
import time

from kit import kube
from kit.kube import phase
from kit.remote_node import RemotePod
from kit.wait import until

MIGRATIONS = kube.KUBEVIRT + "/namespaces/default/virtualmachineinstancemigrations"
TARGET_LABEL = "kubevirt.io/migrationTargetNodeName"
INTERVAL = 0.1  # seconds between two rounds

# What virt-controller resolves from the KubeVirt CR and writes to the VMI. The claims are on a file
# system that libvirt cannot know to be shared, hence the override.
CONFIGURATION = {
    "nodeDrainTaintKey": "kubevirt.io/drain",
    "parallelOutboundMigrationsPerNode": 2,
    "parallelMigrationsPerCluster": 5,
    "allowAutoConverge": False,
    "bandwidthPerMigration": "0",
    "completionTimeoutPerGiB": 150,
    "maxDowntimeMs": 900,
    "progressTimeout": 150,
    "utilityVolumesTimeout": 150,
    "unsafeMigrationOverride": True,
    "allowPostCopy": False,
    "allowWorkloadDisruption": False,
    "disableTLS": False,
    "matchSELinuxLevelOnMigration": True,
}


class Migration:
    """Of one VM to another node, begun at once. `configuration`: what differs from CONFIGURATION.

    A VM with hotplugged volumes gets an attachment pod on the target, and `attachment_pod` is that.
    """

    def __init__(self, vm, target, **configuration):
        self.vm, self.target = vm, target
        self.configuration = {**CONFIGURATION, **configuration}
        self.start, self.phases, self.errors = time.time(), [], []
        self.done = threading.Event()
        self.mark = vm.recorder.mark()
        obj = kube.create(
            MIGRATIONS,
            {
                "metadata": {
                    "generateName": vm.name + "-",
                    "finalizers": ["kubevirt.io/migrationJobFinalize"],
                    "labels": {"kubevirt.io/vmi-name": vm.name},
                },
                "spec": {"vmiName": vm.name},
                "status": {},
            },
        )
        self.uid, self.path = obj["metadata"]["uid"], f"{MIGRATIONS}/{obj['metadata']['name']}"
        source_pod = vm.pod.name
        self.set_phase("Pending")
        self.start_pod()
        self.set_phase("Scheduling")
        until("the target's pod", lambda: self.pod.ready() or self.pod.poll() is not None, 20)
        self.attachment_pod = vm.start_attachment_pod(target) if vm.start_attachment_pod else None
        self.set_phase("Scheduled")
        vm.edit(lambda vmi: self.hand_over(vmi, source_pod))
        threading.Thread(target=self.loop, daemon=True).start()

    def start_pod(self):
        """As soon as the pod has a node, the VMI names it among its active pods."""
        vm = self.vm
        log = f"{vm.session.folder}/launcher-{vm.name}-target{len(vm.records)}.log"
        self.pod = RemotePod(self.target, vm.latest, log, **{**vm.options, **vm.target_options})
        self.record = vm.session.controller.add(vm.vmi, self.pod)
        vm.records.append(self.record)
        vm.edit(
            lambda vmi: vmi["status"].setdefault("activePods", {}).update({self.pod.uid: self.target.name})
        )

    def hand_over(self, vmi, source_pod):
        vmi["status"]["migrationState"] = {
            "migrationUid": self.uid,
            "sourceNode": vmi["status"]["nodeName"],
            "targetNode": self.target.name,
            "sourcePod": source_pod,
            "targetPod": self.pod.name,
            "migrationConfiguration": self.configuration,
        }
        claim = self.vm.state_claim
        if claim:
            vmi["status"]["migrationState"].update(
                sourcePersistentStatePVCName=claim, targetPersistentStatePVCName=claim
            )
        if self.attachment_pod:
            vmi["status"]["migrationState"]["targetAttachmentPodUID"] = self.attachment_pod.uid
        vmi["metadata"]["labels"][TARGET_LABEL] = self.target.name

    def set_phase(self, new):
        self.phases.append([round(time.time() - self.start, 2), new])
        self.phase = new

        def change(obj):
            obj.setdefault("status", {})["phase"] = new
            if new in ("Succeeded", "Failed"):
                obj["metadata"]["finalizers"] = []

        kube.edit(self.path, change)

    def loop(self):
        while not self.done.is_set():
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - a conflict: the next round sees the new state
                self.errors.append(repr(error))
            time.sleep(INTERVAL)

    def step(self):
        vmi = kube.get_or_none(self.vm.path)
        state = ((vmi or {}).get("status") or {}).get("migrationState") or {}
        if vmi is None or phase(vmi) in ("Succeeded", "Failed"):
            self.finish("Failed")
        elif self.record.ended and not state.get("completed"):
            if self.phase != "Failed":
                self.set_phase("Failed")
            self.vm.edit(target_pod_is_down)
            self.done.set()
        elif state.get("migrationUid") != self.uid or state.get("failed"):
            self.finish("Failed")
        elif self.phase == "Scheduled":
            self.set_phase("PreparingTarget")
        elif self.phase == "PreparingTarget" and state.get("targetNodeAddress"):
            self.set_phase("TargetReady")
        elif self.phase == "TargetReady" and state.get("startTimestamp"):
            self.set_phase("Running")
        elif self.phase == "Running" and state.get("completed"):
            self.vm.edit(restore_image_version)
            if self.attachment_pod:
                self.vm.edit(self.name_attachment_pod)
            self.finish("Succeeded")
        elif self.phase == "Running" and self.cancelled() and not state.get("abortRequested"):
            self.vm.edit(lambda obj: obj["status"]["migrationState"].update(abortRequested=True))

    def name_attachment_pod(self, vmi):
        """The VMI's pod is now the target's, and so are its hotplugged volumes' attachment pods."""
        for volume in vmi["status"]["volumeStatus"]:
            if "hotplugVolume" in volume:
                volume["hotplugVolume"] = {
                    "attachPodName": self.attachment_pod.name,
                    "attachPodUID": self.attachment_pod.uid,
                }

    def finish(self, new):
        self.set_phase(new)
        self.done.set()

    def cancelled(self):
        obj = kube.get_or_none(self.path) or {}
        return "deletionTimestamp" in obj.get("metadata", {})

    # ---- what the scenarios ask

    def cancel(self):
        """virtctl migrate-cancel"""
        kube.delete(self.path)

    def wait(self, what, predicate, timeout):
        """For a state of this migration; returns the seconds since its begin."""

        def check(vmi):
            state = vmi["status"].get("migrationState") or {}
            return state.get("migrationUid") == self.uid and predicate(state)

        self.vm.recorder.wait(what, check, timeout, self.mark)
        return round(time.time() - self.start, 2)

    def runs(self, timeout=40):
        return until("the migration runs", lambda: self.phase == "Running", timeout)

    def ended(self, timeout=90):
        """Its last phase and its time."""
        self.wait(
            "the migration's end",
            lambda s: s.get("endTimestamp") and (s.get("completed") or s.get("failed")),
            timeout,
        )
        until("virt-controller has seen it", self.done.is_set, 10)
        return f"{self.phase} after {round(time.time() - self.start, 1)} s"


def target_pod_is_down(vmi):
    state = vmi["status"]["migrationState"]
    state["failed"] = state["completed"] = True
    state.setdefault("startTimestamp", kube.now())
    state.setdefault("endTimestamp", kube.now())
    state.setdefault("failureReason", "Target pod is down")


def restore_image_version(vmi):
    """virt-handler empties it."""
    if not vmi["status"].get("launcherContainerImageVersion"):
        vmi["status"]["launcherContainerImageVersion"] = "test"
