"""A VM of a scenario: its VMI, its pod, what virt-handler makes of it, and its guest."""

import json
import os
import time
import uuid

from kit import kube, objects, rest, settings
from kit.kube import condition, phase
from kit.launcher_pod import LauncherPod
from kit.normalize import plain
from kit.recorder import Recorder
from kit.wait import until
from kit.websocket import WebSocket

FINAL = ("Succeeded", "Failed")
PROMPT = "guest# "
# Seconds in which virt-handler notices that a discarded VM is gone: its errors are not the next
# scenario's.
DISCARD_DELAY = 2


class VM:
    """Its pod starts, and then its VMI is created. `change` edits the VMI before; `options` are the pod's."""

    def __init__(self, session, name, grace=30, change=None, **options):
        self.session, self.name, self.namespace = session, name, "default"
        self.vmi = objects.vmi(name, pod_uid=str(uuid.uuid4()), grace=grace)
        if change:
            change(self.vmi)
        self.log = f"{session.folder}/launcher-{name}.log"
        if os.path.exists(self.log):
            os.unlink(self.log)
        self.path = kube.vmi_path(self.namespace, name)
        self.address = settings.NODE_ADDRESS
        self.socket = None
        self.recorder = Recorder(self.namespace, name)
        self.start = time.time()
        self.pod = self.start_pod(options)
        kube.create(kube.vmi_path(self.namespace), self.vmi)
        # Not before: virt-controller ends the pod of a VMI that does not exist.
        self.record = session.controller.add(self.vmi, self.pod)
        session.vms.append(self)

    def start_pod(self, options):
        (uid,) = self.vmi["status"]["activePods"]
        options = {"disk": settings.GUEST, "log": self.log, **options}
        return LauncherPod(self.vmi, self.session.image, uid=uid, **options).start()

    @property
    def latest(self):
        return self.recorder.latest()

    @property
    def status(self):
        return self.latest.get("status") or {}

    def condition(self, kind):
        return condition(self.latest, kind)

    # ---- virt-handler's REST server

    def put(self, subresource, body=None):
        """Status code and text, as one text."""
        path = rest.vmi_path(self.namespace, self.name, subresource)
        code, answer = rest.request("PUT", path, body, address=self.address)
        return f"{code} {plain(answer.decode(errors='replace'))}".strip()

    def get(self, subresource):
        """Status code, and the JSON document or the text."""
        path = rest.vmi_path(self.namespace, self.name, subresource)
        code, answer = rest.request("GET", path, address=self.address, accept="application/json")
        try:
            return [code, json.loads(answer)]
        except ValueError:
            return [code, plain(answer.decode(errors="replace"))[:300]]

    # ---- waiting for what virt-handler writes; each returns the seconds since the VM's start

    def wait(self, what, predicate, timeout, since=None):
        """For a version of the VMI, from the last one on or from `since` on."""
        self.recorder.wait(what, predicate, timeout, self.recorder.mark() if since is None else since)
        return round(time.time() - self.start, 2)

    def running(self, timeout=60):
        seconds = self.wait("phase Running", lambda vmi: phase(vmi) in ("Running", *FINAL), timeout, since=0)
        if "Running" not in [text for _, text in self.recorder.phases()]:
            raise RuntimeError(f"phase {phase(self.latest)}")
        return seconds

    def agent_connected(self, timeout=60):
        return self.wait("AgentConnected", lambda vmi: condition(vmi, "AgentConnected"), timeout, since=0)

    def has_condition(self, kind, timeout=15, since=None):
        return self.wait(kind, lambda vmi: condition(vmi, kind), timeout, since)

    def lacks_condition(self, kind, timeout=15, since=None):
        return self.wait(f"not {kind}", lambda vmi: not condition(vmi, kind), timeout, since)

    def final_phase(self, timeout=60):
        self.wait("a final phase", lambda vmi: phase(vmi) in FINAL, timeout, since=0)
        return f"{phase(self.latest)} at {round(time.time() - self.start, 1)}"

    def gone(self, timeout=90):
        """The phases on the way."""
        until("the VMI is gone", lambda: kube.get_or_none(self.path) is None, timeout)
        until("the recorder has seen it", lambda: self.recorder.phases()[-1][1].endswith("DELETED"), 5)
        return [text for _, text in self.recorder.phases()]

    def pod_ended(self, timeout=60):
        """The pod's exit status."""
        until("the pod's end", lambda: self.record.ended, timeout)
        return self.record.exit_code

    # ---- the guest

    def console(self):
        if not self.socket:
            self.socket = WebSocket(rest.vmi_path(self.namespace, self.name, "console"), self.address)
        return self.socket

    def guest_up(self, timeout=60):
        if not self.console().expect(settings.GUEST_UP, timeout):
            raise TimeoutError(
                f"{settings.GUEST_UP!r} did not come; the last was {self.console().text[-200:]!r}"
            )
        return True

    def shell(self, command, timeout=15):
        """What a command prints in the guest, through virt-handler's console."""
        console, mark = self.console(), uuid.uuid4().hex[:8]
        console.text = b""
        # In two parts, so that the echo of the input is not the mark.
        console.send(f"echo B''EGIN-{mark}; {command}; echo E''ND-{mark}\n")
        if not console.expect(f"END-{mark}", timeout):
            raise TimeoutError(f"{command!r} in the guest: {console.text[-300:]!r}, {console.closed}")
        text = console.text.decode(errors="replace").replace("\r", "")
        return text.split(f"BEGIN-{mark}", 1)[-1].split(f"END-{mark}")[0].replace(PROMPT, "").strip()

    # ---- the VMI

    def edit(self, change):
        return kube.edit(self.path, change)

    def delete(self):
        kube.delete(self.path)

    def volume(self, name):
        """Its entry in status.volumeStatus; an empty one if there is none."""
        return next((v for v in self.status.get("volumeStatus", []) if v["name"] == name), {})

    def interface(self, name):
        """Its entry in status.interfaces; an empty one if there is none."""
        return next((i for i in self.status.get("interfaces", []) if i.get("name") == name), {})

    def discard(self):
        """Ends the VM at once, whatever state it is in."""
        if self.socket:
            self.socket.close()
        if not self.record.gone:
            if kube.get_or_none(self.path):
                self.delete()
            self.pod.kill()
            try:
                self.gone(15)
            except TimeoutError:
                pass
            time.sleep(DISCARD_DELAY)
        self.recorder.stopped = True
