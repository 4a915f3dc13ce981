"""What `compare` says of the broken launchers of ../broken/faults.toml, by what they recorded."""

import os
import sys
import tomllib
import unittest

COMPAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, COMPAT)

from kit import registry, report, settings  # noqa: E402

RECORDS = f"{COMPAT}/tests/broken"
# Scenarios whose fault KubeVirt's own launcher has, and the step that fails there.
KUBEVIRTS = {
    "six_volumes_one_locked": "the others are Ready",
    "unread_log": "meanwhile: Paused",
    "daemon_stopped_for_good": "another virtqemud",
    "handler_killed_in_sync": "the volume is Ready",
}


class BrokenLaunchers(unittest.TestCase):
    def setUp(self):
        with open(f"{COMPAT}/broken/faults.toml", "rb") as f:
            self.faults = tomllib.load(f)
        known = registry.load()
        references = {version: report.reference(version) for version in settings.VERSIONS}
        self.reference_of = {name: references[each.since] for name, each in known.items()}

    def test_each_fails_in_a_scenario_of_its_own(self):
        scenarios = {fault["scenario"] for fault in self.faults.values()}
        self.assertEqual(len(scenarios), len(self.faults))
        self.assertGreaterEqual(len(scenarios), 10)

    def test_what_they_recorded_differs_where_it_has_to(self):
        for name, fault in self.faults.items():
            with self.subTest(name):
                variant = report.Variant(f"{RECORDS}/{name}")
                scenario = fault["scenario"]
                found = report.differences(self.reference_of[scenario], variant, scenario)
                self.assertIn(fault["shows"], map(str, found))
                self.assertEqual(report.exit_status(self.reference_of[scenario], [variant], [scenario]), 1)

    def test_the_whole_launcher_shows_none_of_it(self):
        variant = report.Variant(f"{RECORDS}/whole")
        for fault in self.faults.values():
            with self.subTest(scenario := fault["scenario"]):
                verdict = report.verdict(self.reference_of[scenario], variant, scenario)
                self.assertEqual(verdict.partition(":")[0], fault.get("whole", "equal"))
                found = report.differences(self.reference_of[scenario], variant, scenario)
                self.assertNotIn(fault["shows"], map(str, found))

    def test_kubevirts_own_launcher_fails_where_it_has_the_fault(self):
        for scenario, step in KUBEVIRTS.items():
            with self.subTest(scenario):
                self.assertIn(step, self.reference_of[scenario].failed(scenario))


if __name__ == "__main__":
    unittest.main()
