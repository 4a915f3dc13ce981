"""The record of one scenario: steps, and afterwards what virt-handler has made of the VMI. Written as JSON."""

import json
import time
import traceback

from kit import conditions
from kit.normalize import distinct, plain, status
from kit.virt_handler import json_lines

SHOWN_CHARACTERS = 230
RECORDED_TYPES = (str, int, float, bool, list, dict, type(None))


class StepFailed(Exception):
    """A step without which the scenario makes no sense has failed; it is recorded already."""


class Result:
    def __init__(self, session, name):
        self.session, self.name = session, name
        self.start = time.time()
        self.log_mark = session.handler.log_size()
        self.data = {"steps": [], "failed": []}

    def step(self, label, action, *arguments, required=False, measured=False, **named):
        """Runs an action and records its result and time. A failure is recorded too, and gives None; where the step is
        `required`, it ends the scenario. The value of one that is `measured` differs from run to run."""
        start = time.time()
        try:
            value, ok = action(*arguments, **named), True
        except Exception as error:  # noqa: BLE001 - whatever fails is the step's result
            value, ok = f"{type(error).__name__}: {error}", False
            self.data["failed"].append(label)
        seconds = round(time.time() - start, 2)
        value = value if isinstance(value, RECORDED_TYPES) else None
        record = {"step": label, "seconds": seconds, "ok": ok, "result": value}
        self.data["steps"].append({**record, "measured": True} if measured else record)
        print(
            f"  {'ok  ' if ok else 'FAIL'} {seconds:6.2f}  {label}: {str(value)[:SHOWN_CHARACTERS]}",
            flush=True,
        )
        if required and not ok:
            raise StepFailed(label)
        return value if ok else None

    def record(self, key, value):
        self.data[key] = value

    def skip(self, reason):
        """The scenario cannot run on this machine."""
        self.data["skipped"] = reason
        print(f"  not run: {reason}", flush=True)

    def crashed(self):
        """Called while an exception is handled that no step has recorded."""
        self.data["crashed"] = traceback.format_exc()
        self.data["failed"].append("crashed")
        print(self.data["crashed"], flush=True)

    def finish(self, vm=None):
        if vm:
            self.data["status"] = status(vm.recorder.latest())
            self.data["events"] = [
                [
                    event["type"],
                    event["reason"],
                    plain(event["message"]),
                    event.get("count", 1),
                    event["source"].get("component"),
                ]
                for event in vm.recorder.events()
            ]
            self.data["phases"] = vm.recorder.phases()
            self.data[conditions.KEY] = vm.recorder.condition_timeline()
            self.data["pod_notes"] = vm.record.notes
            self.data["exit"] = vm.record.exit_code
            self.data["launcher_log"] = distinct(json_lines(vm.log))
            processes = vm.pod.tree()
            self.data["left_running"] = sorted(name for name, state in processes if state != "Z")
            self.data["zombies"] = sorted(name for name, state in processes if state == "Z")
        self.data["handler_log"] = distinct(self.session.handler.log_lines(self.log_mark))
        self.data["seconds"] = round(time.time() - self.start, 1)

    def write(self, folder):
        with open(f"{folder}/{self.name}.json", "w") as f:
            json.dump(self.data, f, indent=1)
            f.write("\n")
