"""A launcher that dies and is started again (RESTART_LAUNCHER=yes), and what virt-handler may see of it."""

import os
import re
import threading
import time
from collections import Counter

from kit import conditions, settings
from kit.wait import until

SWITCH = "RESTART_LAUNCHER"
EVENT = "LauncherRestarted"
# virt-handler's event SyncFailed about a call that has ended with its launcher: by gRPC's status.
LOST_CALL, STATUS = "SyncFailed of a lost call", re.compile("code = (Unavailable|Canceled)")
# In the launcher's log: by one that begins, by one that serves, and by the monitor.
BEGINS, SERVES, DIED = "Hypervisor set to", '"Marked as ready"', '"virt-launcher has died; starting it again"'
# The monitor gives up at the third death in 60 s, by its own clock.
DEATHS_IN_A_ROW, ROW_SECONDS = 2, 62
BACK_TIMEOUT, LINE_TIMEOUT = 30, 60  # seconds
LOG_INTERVAL = 0.002  # seconds between two looks at the log
SEEN_SECONDS = 5.0  # a condition that goes, or is back, sooner counts for nothing


def starts_again(session):
    """Why a launcher that dies does not end its pod; None if it does."""
    names = [each.name for each in session.launchers if each.environment.get(SWITCH) == "yes"]
    return f"the monitor of {names[0]} starts a launcher that dies again" if names else None


def never_starts_again(session):
    """Why a launcher that dies ends its pod; None if it is started again."""
    names = [each.name for each in session.launchers if each.environment.get(SWITCH) != "yes"]
    return f"the environment of {names[0]} has no {SWITCH}=yes" if names else None


class Deaths:
    """Of the launchers of one VM, whose conditions and events are from now on what they should be."""

    def __init__(self, vm):
        self.vm, self.times, self.last, self.seen = vm, {}, None, ""
        self.start = time.time() - vm.recorder.start
        self.conditions = shown(vm)
        self.events = counted(vm)

    # ---- deaths; of the launcher in the VM's pod, if no other one is named

    def kill(self, number, pod=None):
        """Kills it now; the seconds until the next one serves."""
        self.die(number, pod)
        return self.back()

    def die(self, number, pod=None):
        pod = self.rest(pod or self.vm.pod)
        self.strike(number, pod)

    def at(self, line, number, action=None, pod=None):
        """Kills it as soon as a line with this text is in its log. `action` brings the line about, and its result is
        returned; without an action, the line may be there already."""
        pod = self.rest(pod or self.vm.pod)
        log = Log(pod, is_new=action is not None)
        watch = threading.Thread(target=self.watch, args=(line, number, pod, log), daemon=True)
        before = self.last
        watch.start()
        try:
            value = action() if action else None
        finally:
            watch.join()
        if self.last is before:
            raise RuntimeError(f"{line!r} was not logged")
        self.back()
        return value

    def watch(self, line, number, pod, log):
        deadline = time.time() + LINE_TIMEOUT * settings.TIMEOUTS
        while time.time() < deadline:
            if line in log.text():
                self.strike(number, pod)
                self.seen = log.text().partition(line)[2]
                return
            time.sleep(LOG_INTERVAL)

    def rest(self, pod):
        """So that the monitor does not give up. Returns the pod."""
        row = self.times.setdefault(pod.uid, [])[-DEATHS_IN_A_ROW:]
        if len(row) == DEATHS_IN_A_ROW:
            time.sleep(max(0, row[0] + ROW_SECONDS - time.time()))
        return pod

    def strike(self, number, pod):
        log = Log(pod)
        pod.kill_launcher(number)
        self.times[pod.uid].append(time.time())
        self.last = log

    def came_before(self, line):
        """It had not logged this text after the line that its death waited for. RuntimeError if it had."""
        if line in self.seen:
            raise RuntimeError(f"{line!r} was logged already")
        return True

    def back(self, line=SERVES):
        """The seconds until the next launcher logs this text."""

        def logs():
            _, died, later = self.last.text().rpartition(DIED)
            return died and line in later

        until("the next launcher", logs, BACK_TIMEOUT)
        return round(time.time() - max(map(max, filter(None, self.times.values()))), 2)

    # ---- what virt-handler has seen; each step fails if it has seen a death

    def check(self, result, events=(), conditions=()):
        """The guest runs on. `events`, `conditions`: reasons and types that the scenario itself makes."""
        result.step("seen: Running only", self.phases, "Running")
        result.step("seen: no other condition", self.new_conditions, conditions)
        result.step("seen: every condition of before", self.lost_conditions, conditions)
        result.step("seen: no other event", self.new_events, events)

    def end(self, result):
        """Its VMI is deleted, and ends as any other."""
        self.vm.delete()
        result.step("gone", self.vm.gone)
        result.step("seen: Succeeded", self.phases, "Running", "Succeeded")
        result.step("exit status", self.vm.pod_ended)

    def check_end(self, result, final, events=()):
        """Its VMI is gone."""
        result.step(f"seen: {final}", self.phases, "Running", final)
        result.step("seen: no other condition", self.new_conditions, ())
        result.step("seen: no other event", self.new_events, events)
        result.step("exit status", self.vm.pod_ended)

    def phases(self, *expected):
        found = [text.split()[0] for _, text in self.vm.recorder.phases()]
        found = [phase for index, phase in enumerate(found) if found[index - 1 : index] != [phase]]
        if found != ["Scheduled", *expected]:
            raise RuntimeError(str(self.vm.recorder.phases()))
        return found

    def spans(self, own):
        """Of the timeline of conditions, since the first death."""
        found = self.vm.recorder.condition_timeline()
        return [span for span in found if span[1] > self.start and span[2] not in own]

    def new_conditions(self, own):
        """Those that are there for too short to count."""
        new = [span for span in self.spans(own) if tuple(span[2:]) not in self.conditions]
        long = [span for span in new if span[1] - span[0] > SEEN_SECONDS]
        if long:
            raise RuntimeError(str(long))
        return new

    def lost_conditions(self, own):
        """Each one is there at the end, and was never away for long."""
        end = time.time() - self.vm.recorder.start
        for key in self.conditions:
            there = [span for span in self.spans(own) if tuple(span[2:]) == key]
            begins = [span[0] for span in there[1:]] + [end]
            gaps = [round(begin - span[1], 2) for span, begin in zip(there, begins, strict=False)]
            if any(gap > SEEN_SECONDS for gap in gaps) or there and key not in shown(self.vm):
                raise RuntimeError(f"{key}: lacked for {gaps} s")
        return sorted(" ".join(key) for key in self.conditions)

    def new_events(self, own):
        """One for each death, and none beside it."""
        deaths = sum(map(len, self.times.values()))
        until("the events of all deaths", lambda: counted(self.vm)[EVENT] >= deaths, 10)
        new = self.known_events(own)
        if new[EVENT] != deaths:
            raise RuntimeError(f"{new} after {deaths} deaths")
        return new

    def known_events(self, own):
        new = counted(self.vm) - self.events
        if not set(new) <= {EVENT, *own}:
            raise RuntimeError(str(dict(new)))
        return dict(new)


def shown(vm):
    """Type, status and reason of each condition that is there now."""
    return set(conditions.conditions(vm.latest))


def counted(vm):
    """Reason -> how often, of the events about the VMI; those of calls that have ended with the launcher by LOST_CALL."""
    out = Counter()
    for event in vm.recorder.events():
        reason = LOST_CALL if STATUS.search(event["message"]) else event["reason"]
        out[reason] += event.get("count", 1)
    return out


class Log:
    """What comes into a pod's log from now on; all of it if not `is_new`."""

    def __init__(self, pod, is_new=True):
        self.path, self.begin = pod.log, os.path.getsize(pod.log) if is_new else 0

    def text(self):
        with open(self.path, errors="replace") as f:
            f.seek(self.begin)
            return f.read()
