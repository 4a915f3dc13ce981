"""What counts as a launcher's death that virt-handler has seen."""

import os
import sys
import tempfile
import threading
import time
import unittest
from types import SimpleNamespace

COMPAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, COMPAT)

from kit.launcher_deaths import EVENT, LOST_CALL, Deaths, Log, never_starts_again, starts_again  # noqa: E402
from kit.recorder import Recorder  # noqa: E402

AGENT, PAUSED = {"type": "AgentConnected", "status": "True"}, {"type": "Paused", "status": "True"}
UNAVAILABLE = "rpc error: code = Unavailable desc = error reading from server: EOF"


class Recorded(Recorder):
    """The record of a VMI that ran 100 s ago."""

    def __init__(self):
        self.start, self.versions, self.happened = time.time() - 100, [], []
        self.version(0, "Scheduled")
        self.version(1, "Running", AGENT)

    def version(self, seconds, phase, *conditions):
        vmi = {"metadata": {}, "status": {"phase": phase, "conditions": list(conditions)}}
        self.versions.append((seconds, "MODIFIED", vmi))

    def event(self, reason, count=1, message=""):
        self.happened.append({"reason": reason, "count": count, "message": message})

    def events(self):
        return self.happened


class Seen(unittest.TestCase):
    def setUp(self):
        self.recorder = Recorded()
        self.recorder.event("Started")
        pod = SimpleNamespace(uid="p")
        vm = SimpleNamespace(recorder=self.recorder, pod=pod)
        vm.latest = self.recorder.latest()
        self.vm, self.deaths = vm, Deaths(vm)
        self.deaths.start = 50
        self.deaths.times = {"p": [time.time()]}

    def version(self, seconds, phase, *conditions):
        self.recorder.version(seconds, phase, *conditions)
        self.vm.latest = self.recorder.latest()

    def refused(self, check, *arguments):
        with self.assertRaises(RuntimeError):
            check(*arguments)

    def test_another_phase(self):
        self.assertEqual(self.deaths.phases("Running"), ["Scheduled", "Running"])
        self.version(60, "Failed", AGENT)
        self.refused(self.deaths.phases, "Running")
        self.version(61, "Running", AGENT)
        self.refused(self.deaths.phases, "Running")

    def test_a_condition_for_a_moment_and_for_long(self):
        self.version(60, "Running", AGENT, PAUSED)
        self.version(64, "Running", AGENT)
        self.assertEqual(self.deaths.new_conditions(()), [[60, 64, "Paused", "True", ""]])
        self.version(70, "Running", AGENT, PAUSED)
        self.version(76, "Running", AGENT)
        self.refused(self.deaths.new_conditions, ())
        self.assertEqual(self.deaths.new_conditions(("Paused",)), [])

    def test_a_condition_that_is_lost(self):
        self.version(60, "Running")
        self.version(64, "Running", AGENT)
        self.deaths.lost_conditions(())
        self.version(70, "Running")
        self.version(76, "Running", AGENT)
        self.refused(self.deaths.lost_conditions, ())

    def test_a_condition_that_is_lost_at_the_end(self):
        self.version(99, "Running")
        self.refused(self.deaths.lost_conditions, ())

    def test_events(self):
        self.recorder.event(EVENT)
        self.assertEqual(self.deaths.new_events(()), {EVENT: 1})
        self.recorder.event("SyncFailed", message=UNAVAILABLE)
        self.refused(self.deaths.new_events, ())
        self.deaths.new_events((LOST_CALL,))
        self.recorder.event("SyncFailed")
        self.refused(self.deaths.new_events, (LOST_CALL,))

    def test_an_event_too_many(self):
        self.recorder.event(EVENT, count=2)
        self.refused(self.deaths.new_events, ())


class Death(unittest.TestCase):
    def test_at_a_line_of_the_log(self):
        with tempfile.NamedTemporaryFile("w") as log:
            log.write("it begins\n")
            log.flush()

            def write(text):
                log.write(text + "\n")
                log.flush()

            def die(_number):
                write('{"msg":"virt-launcher has died; starting it again"}\n{"msg":"Marked as ready"}')

            pod = SimpleNamespace(uid="p", log=log.name, kill_launcher=die)
            recorder = Recorded()
            deaths = Deaths(SimpleNamespace(recorder=recorder, pod=pod, latest=recorder.latest()))
            late = threading.Timer(0.2, write, ("it begins",))
            deaths.at("it begins", 9, late.start)
            self.assertEqual(len(deaths.times["p"]), 1)
            self.assertTrue(deaths.came_before("it ends"))
            self.assertRaises(RuntimeError, deaths.came_before, "Marked as ready")
            self.assertEqual(Log(pod).text(), "")


class Switch(unittest.TestCase):
    def test_who_starts_again(self):
        with_it = SimpleNamespace(name="a", environment={"RESTART_LAUNCHER": "yes"})
        without = SimpleNamespace(name="b", environment={})
        for launchers, again, never in (
            ([with_it], True, False),
            ([without], False, True),
            ([with_it, without], True, True),
        ):
            session = SimpleNamespace(launchers=launchers)
            self.assertEqual(bool(starts_again(session)), again)
            self.assertEqual(bool(never_starts_again(session)), never)


if __name__ == "__main__":
    unittest.main()
