"""As much of virt-controller and of the kubelet's pod loop as VMIs need: pods end, VMIs of ended pods go."""

import os
import signal
import threading
import time

from kit import kube

INTERVAL = 0.1  # seconds between two rounds
VOLUMES_REMOVED_AFTER = 2  # seconds after a pod's end
# virt-controller removes the finalizer in a final phase; without one it waits for virt-handler this
# long.
FINALIZER_REMOVED_AFTER = 4
# virt-controller's margin on top of the guest's grace period, after which the kubelet sends
# SIGKILL.
POD_GRACE_MARGIN = 30


class PodRecord:
    """What the controller knows of one launcher pod."""

    def __init__(self, vmi, pod):
        meta = vmi["metadata"]
        self.vmi_uid, self.name, self.namespace = meta["uid"], meta["name"], meta["namespace"]
        self.pod = pod
        self.start = time.time()
        self.notes = []  # (seconds since the start, what happened)
        self.terminated = None  # when SIGTERM was sent
        self.ended = None
        self.exit_code = None
        self.volumes_removed = False
        self.gone = False  # nothing more to do
        self.grace = vmi["spec"].get("terminationGracePeriodSeconds", 30) + POD_GRACE_MARGIN
        self.path = kube.vmi_path(self.namespace, self.name)

    def note(self, text):
        self.notes.append((round(time.time() - self.start, 2), text))


class Controller:
    def __init__(self):
        self.records = []
        self.lock = threading.Lock()
        self.errors = []
        threading.Thread(target=self.loop, daemon=True).start()

    def add(self, vmi, pod):
        record = PodRecord(vmi, pod)
        with self.lock:
            self.records.append(record)
        return record

    @staticmethod
    def terminate(record):
        """The kubelet's part of deleting a pod."""
        record.terminated = time.time()
        record.note("SIGTERM to the pod")
        record.pod.signal(signal.SIGTERM)

    def loop(self):
        while True:
            with self.lock:
                records = [r for r in self.records if not r.gone]
            for record in records:
                try:
                    self.step(record)
                except Exception as error:  # noqa: BLE001 - a conflict or a race: the next round sees the new state
                    self.errors.append(repr(error))
            time.sleep(INTERVAL)

    def step(self, record):
        vmi = kube.get_or_none(record.path)
        if vmi and vmi["metadata"]["uid"] != record.vmi_uid:
            vmi = None  # a new VMI of the same name
        code = record.pod.poll()
        if code is None:
            self.while_running(record, vmi)
            return
        if record.ended is None:
            self.pod_ended(record, code)
        phase = kube.phase(vmi or {})
        if phase in ("Scheduled", "Scheduling", "Pending"):
            kube.edit(record.path, lambda obj: obj["status"].update(phase="Failed"))
            record.note("virt-controller: the pod ended before the VMI was running: Failed")
        if not record.volumes_removed and time.time() - record.ended > VOLUMES_REMOVED_AFTER:
            self.remove_volumes(record, vmi)
        if vmi is None:
            record.gone = record.volumes_removed
        elif self.may_release(record, vmi, phase):
            kube.edit(record.path, lambda obj: obj["metadata"].update(finalizers=[]))
            record.note(f"virt-controller: finalizer removed, phase {phase}")
            record.gone = True

    def while_running(self, record, vmi):
        if record.terminated:
            if time.time() - record.terminated > record.grace:
                record.note("the grace period is over: SIGKILL to the pod")
                record.pod.signal(signal.SIGKILL)
        elif vmi is None or vmi["metadata"].get("deletionTimestamp"):
            self.terminate(record)

    @staticmethod
    def pod_ended(record, code):
        record.ended, record.exit_code = time.time(), code
        record.note(f"pod ended, exit status {code}")
        cores = record.pod.save_core_files(os.path.dirname(record.pod.log))
        if cores:
            record.note(f"core files: {cores}")

    @staticmethod
    def remove_volumes(record, vmi):
        mounted = record.pod.remove_volumes()
        record.volumes_removed = True
        record.note("kubelet: volumes removed" + (f", of them still mounted: {mounted}" if mounted else ""))
        if vmi and record.pod.uid in (vmi["status"].get("activePods") or {}):
            kube.edit(record.path, lambda obj: obj["status"].get("activePods", {}).pop(record.pod.uid, None))

    def may_release(self, record, vmi, phase):
        """Whether the finalizer of a deleted VMI may go."""
        with self.lock:
            others = [r for r in self.records if r.vmi_uid == record.vmi_uid and not r.volumes_removed]
        handled = phase in ("Succeeded", "Failed") or time.time() - record.ended > FINALIZER_REMOVED_AFTER
        return record.volumes_removed and not others and vmi["metadata"].get("deletionTimestamp") and handled
