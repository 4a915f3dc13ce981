"""What counts as a difference between two records."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kit.comparison import common, compare, from_all, verdict  # noqa: E402


def record(**changes):
    base = {
        "steps": [step("phase Running", 1.9), step("final phase", "Succeeded at 12.3"), step("pod ended", 0)],
        "failed": [],
        "phases": [[0.1, "Scheduled"], [1.9, "Running"]],
        "exit": 0,
        "events": [["Normal", "Started", "started", 1, "virt-handler"]],
        "handler_log": ["error: cannot do it [a.go:1] x3"],
        "status": {"conditions": [{"type": "Paused", "reason": "PausedByUser"}]},
    }
    return {**base, **changes}


def step(name, result, ok=True, **more):
    return {"step": name, "seconds": 0.5, "ok": ok, "result": result, **more}


def found(**changes):
    return [(difference.where, difference.what) for difference in compare(record(), record(**changes))]


class Comparison(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(found(), [])
        self.assertEqual(verdict([]), "equal")

    def test_times_do_not_count(self):
        steps = [step("phase Running", 1.4), step("final phase", "Succeeded at 2.6"), step("pod ended", 0)]
        self.assertEqual(found(steps=steps, phases=[[0.2, "Scheduled"], [1.4, "Running"]]), [])

    def test_whole_numbers_count(self):
        steps = [*record()["steps"][:2], step("pod ended", 1)]
        self.assertEqual(found(steps=steps), [("steps", "pod ended")])

    def test_failed_step(self):
        steps = [step("phase Running", "TimeoutError: not within 60 s", ok=False)]
        differences = compare(record(), record(steps=steps, failed=["phase Running"]))
        self.assertEqual(
            [d.other for d in differences],
            ["failed: TimeoutError: not within 60 s", "not reached", "not reached"],
        )
        self.assertEqual(verdict(differences), "differs: steps (3)")

    def test_two_failures_of_one_step_are_equal(self):
        one, other = (
            record(steps=[step("attach", f"TimeoutError: {text}", ok=False)]) for text in ("a", "b")
        )
        self.assertEqual(list(compare(one, other)), [])

    def test_measured_step(self):
        one, other = (record(steps=[step("memory", {"virt-launcher": n}, measured=True)]) for n in (1, 2))
        self.assertEqual(list(compare(one, other)), [])

    def test_repeated_steps_are_compared_in_order(self):
        one = record(steps=[step("disks", "a"), step("disks", "b")])
        other = record(steps=[step("disks", "a"), step("disks", "c")])
        self.assertEqual([d.what for d in compare(one, other)], ["disks (2)"])

    def test_condition_by_type(self):
        status = {"conditions": [{"type": "AgentConnected"}, {"type": "Paused", "reason": "PausedIOError"}]}
        self.assertEqual(
            found(status=status),
            [
                ("status", "status.conditions[AgentConnected].type"),
                ("status", "status.conditions[Paused].reason"),
            ],
        )

    def test_ports_of_migration_proxies_do_not_count(self):
        def with_ports(first, second, purpose=49152):
            ports = {first: purpose, second: 0}
            event = [
                "Normal",
                "PreparingTarget",
                f"listening at node, on ports: {first},{second}",
                1,
                "virt-handler",
            ]
            return record(
                status={"migrationState": {"targetDirectMigrationNodePorts": ports}},
                events=[event],
                migration_state=[[1.0, {"migrationState.targetDirectMigrationNodePorts": json.dumps(ports)}]],
            )

        one = with_ports("40001", "40002")
        self.assertEqual(compare(one, with_ports("32002", "32001")), [])
        self.assertEqual(
            [(d.where, d.what) for d in compare(one, with_ports("32002", "32001", 49153))],
            [
                ("status", "status.migrationState.targetDirectMigrationNodePorts"),
                ("migration state", "migrationState.targetDirectMigrationNodePorts"),
            ],
        )

    def test_migration_state_by_field(self):
        both = record(migration_state=[[1.0, {"a": "1", "b": "2"}]])
        apart = record(migration_state=[[1.0, {"a": "1"}], [2.0, {"b": "2"}]])
        self.assertEqual(compare(both, apart), [])
        other = record(migration_state=[[1.0, {"a": "1"}], [2.0, {"b": "3"}]])
        self.assertEqual([(d.what, d.reference, d.other) for d in compare(both, other)], [("b", [2], [3])])

    def test_events_by_reason_and_message(self):
        self.assertEqual(found(events=[["Normal", "Started", "started", 7, "virt-handler"]]), [])
        self.assertEqual(found(events=[]), [("events", "Started")])

    def test_errors_without_counts(self):
        self.assertEqual(found(handler_log=["error: cannot do it [a.go:1] x1"]), [])
        self.assertEqual(found(handler_log=["error: cannot do it [a.go:7] x1"]), [])
        self.assertEqual(len(found(handler_log=["error: other [b.go:2] x1"])), 2)

    def test_times_and_processes_of_klog_do_not_count(self):
        first, second = (
            [f"raw: W1124 {time}    {pid} client_config.go:667] Neither is specified. [] x1"]
            for time, pid in (("13:48:52.818404", 3412), ("13:52:09.049569", 2742))
        )
        self.assertEqual(compare(record(handler_log=first), record(handler_log=second)), [])

    def test_lost_connections_are_shown_and_do_not_count(self):
        lines = ["error: cannot do it [a.go:1] x1", "error: connection refused [b.go:2] x1"]
        differences = compare(record(), record(handler_log=lines))
        self.assertEqual([d.where for d in differences], ["lost connections"])
        self.assertEqual(verdict(differences), "equal")

    def test_only_differences_from_every_run_of_the_reference_count(self):
        runs = [record(), record(events=[["Warning", "SyncFailed", "race", 1, "virt-handler"]])]
        other = record(events=[["Warning", "SyncFailed", "race", 1, "virt-handler"]], exit=1)
        found = common([compare(run, other) for run in runs])
        self.assertEqual([(d.where, d.what) for d in found], [("exit status", "of the pod")])

    def test_what_comes_some_time_after_the_agent_does_not_count(self):
        status = {"conditions": record()["status"]["conditions"], "guestOSInfo": {"name": "x"}}
        self.assertEqual(found(status=status), [])

    def test_conditions_that_a_user_sees_on_one_side_only_count(self):
        unsupported = ["AgentVersionNotSupported", "True", "version ''"]
        short, long = (record(condition_timeline=[[3.0, end, *unsupported]]) for end in (4.6, 9.0))
        self.assertEqual(from_all([short], short), [])
        self.assertEqual(from_all([long], record(condition_timeline=[[1.0, 3.5, *unsupported]])), [])
        found = from_all([short], long)
        self.assertEqual(
            [(d.where, d.what, d.reference, d.other) for d in found],
            [("conditions over time", "AgentVersionNotSupported True version ''", "for 1.6 s", "for 6.0 s")],
        )
        self.assertEqual(verdict(found), "differs: conditions over time (1)")
        self.assertEqual([d.other for d in from_all([long], record(condition_timeline=[]))], ["for 0.0 s"])
        self.assertEqual(from_all([short, long], long), [], "a run of the reference shows it too")

    def test_runs_without_a_timeline_do_not_say_what_a_user_sees(self):
        seen = record(condition_timeline=[[0.0, 60.0, "AccessCredentialsSynchronized", "False", ""]])
        empty = record(condition_timeline=[])
        self.assertEqual(from_all([record()], seen), [])
        self.assertEqual(from_all([seen], record()), [])
        self.assertEqual([d.other for d in from_all([record(), empty], seen)], ["for 60.0 s"])

    def test_logs_of_two_nodes(self):
        one, other = (
            record(handler_log={"node01": ["a x1"], "node02": []}),
            record(handler_log={"node01": ["a x2"], "node02": ["b x1"]}),
        )
        self.assertEqual([d.other for d in compare(one, other)], ["b x1"])

    def test_exit_status_and_other_keys(self):
        self.assertEqual(found(exit=2, button=3), [("exit status", "of the pod"), ("button", "")])


if __name__ == "__main__":
    unittest.main()
