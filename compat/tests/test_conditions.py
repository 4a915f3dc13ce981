"""The conditions of a VMI over time."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kit import report  # noqa: E402
from kit.conditions import longest, timeline  # noqa: E402

UNSUPPORTED = ("AgentVersionNotSupported", "True", "Guest agent version '' is not supported")


def version(seconds, *conditions, event="MODIFIED"):
    keys = ("type", "status", "reason")
    found = [dict(zip(keys, condition, strict=False)) for condition in conditions]
    return seconds, event, {"status": {"conditions": found}}


class Timeline(unittest.TestCase):
    def test_a_condition_is_there_until_a_version_lacks_it(self):
        versions = [
            version(1.0),
            version(2.0, ("AgentConnected", "True"), UNSUPPORTED),
            version(2.5, ("AgentConnected", "True")),
            version(3.0, UNSUPPORTED, ("AgentConnected", "True")),
        ]
        expected = [
            [2.0, 9.0, "AgentConnected", "True", ""],
            [2.0, 2.5, *UNSUPPORTED],
            [3.0, 9.0, *UNSUPPORTED],
        ]
        self.assertEqual(timeline(versions, 9.0), expected)
        self.assertEqual(longest(expected), {("AgentConnected", "True", ""): 7.0, UNSUPPORTED: 6.0})

    def test_another_status_is_another_condition(self):
        versions = [version(1.0, ("Synchronized", "False", "x")), version(4.0, ("Synchronized", "True", "x"))]
        self.assertEqual(
            timeline(versions, 5.0),
            [[1.0, 4.0, "Synchronized", "False", "x"], [4.0, 5.0, "Synchronized", "True", "x"]],
        )

    def test_a_vmi_that_is_gone_has_none(self):
        paused = ("Paused", "True", "PausedByUser")
        versions = [version(1.0, paused), version(2.0, paused, event="DELETED")]
        self.assertEqual(timeline(versions, 60.0), [[1.0, 2.0, *paused]])

    def test_what_virt_controller_writes_and_what_differs_in_each_run_is_left_out(self):
        uid = "0f5ee45a-7b7c-4a5e-8a51-0d9ac3f1bd77"
        versions = [version(1.0, ("Ready", "True"), ("A", "True", f"of {uid}")), (2.0, "MODIFIED", {})]
        self.assertEqual(timeline(versions, 3.0), [[1.0, 2.0, "A", "True", "of <uid>"]])


class Report(unittest.TestCase):
    def test_records_of_an_earlier_kit_are_compared_as_far_as_they_go(self):
        old = {"steps": [], "failed": [], "exit": 0}
        new = {**old, "condition_timeline": [[0.0, 9.0, *UNSUPPORTED]]}
        for first, second, lacking in ((old, new, "reference"), (new, old, "other"), (new, new, None)):
            with self.subTest(lacking=lacking), tempfile.TemporaryDirectory() as folder:
                for name, found in (("reference", first), ("other", second)):
                    os.mkdir(f"{folder}/{name}")
                    with open(f"{folder}/{name}/start.json", "w") as f:
                        json.dump(found, f)
                sides = report.Reference(f"{folder}/reference"), report.Variant(f"{folder}/other")
                lines = "\n".join(report.text(sides[0], [sides[1]], ["start"]))
                self.assertIn("1 equal reference's", lines)
                self.assertEqual(f"not compared, no timeline of {lacking}" in lines, lacking is not None)
                self.assertEqual(
                    "In 1 the conditions over time were not compared" in lines, lacking is not None
                )


if __name__ == "__main__":
    unittest.main()
