"""Records every version of a VMI that anybody writes, by a watch."""

import json
import threading
import time

from kit import conditions, kube, settings


class Recorder:
    """`versions`: (seconds since the start, event type, object)."""

    def __init__(self, namespace, name):
        self.namespace, self.name = namespace, name
        self.start = time.time()
        self.versions = []
        self.stopped = False
        self.changed = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        path = (
            f"{kube.vmi_path(self.namespace)}?watch=true&resourceVersion=0"
            f"&fieldSelector=metadata.name%3D{self.name}"
        )
        with kube.open_url(path, 3600) as response:
            for line in response:
                if self.stopped:
                    return
                event = json.loads(line)
                if event["type"] != "BOOKMARK":
                    with self.changed:
                        self.versions.append(
                            (round(time.time() - self.start, 2), event["type"], event["object"])
                        )
                        self.changed.notify_all()

    def latest(self):
        """The last version; an empty object before the first."""
        return self.versions[-1][2] if self.versions else {}

    def mark(self):
        """For `wait(since=…)`: the last version and all later ones."""
        return max(0, len(self.versions) - 1)

    def wait(self, what, predicate, timeout, since=0):
        """Returns the first version from `since` on for which the predicate is true."""
        deadline = time.time() + timeout * settings.TIMEOUTS
        position = since
        with self.changed:
            while True:
                for _, _, obj in self.versions[position:]:
                    if predicate(obj):
                        return obj
                position = len(self.versions)
                left = deadline - time.time()
                if left <= 0:
                    raise TimeoutError(f"{what}: not within {timeout} s")
                self.changed.wait(min(left, 1))

    def phases(self):
        """[seconds, phase] for each change of the phase, the begin of a deletion, and its end."""
        out = []
        for seconds, event, obj in list(self.versions):
            text = str(kube.phase(obj))
            text += " (deleting)" if obj["metadata"].get("deletionTimestamp") else ""
            text += " DELETED" if event == "DELETED" else ""
            if not out or out[-1][1] != text:
                out.append([seconds, text])
        return out

    def condition_timeline(self):
        """Until now."""
        return conditions.timeline(list(self.versions), round(time.time() - self.start, 2))

    def events(self):
        """The Kubernetes events about it, in order."""
        items = kube.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        uids = {obj["metadata"].get("uid") for _, _, obj in self.versions}
        mine = [
            event
            for event in items
            if event["involvedObject"].get("name") == self.name
            and event["involvedObject"].get("uid") in (*uids, None)
        ]
        return sorted(mine, key=lambda event: event.get("firstTimestamp") or "")
