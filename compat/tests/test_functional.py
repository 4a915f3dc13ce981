"""What a cluster does with KubeVirt's own functional tests."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from cluster import functional, kubevirt  # noqa: E402
from cluster.folder import Folder  # noqa: E402


def spec(state, leaf, *containers, kind="It"):
    return {
        "State": state,
        "LeafNodeType": kind,
        "LeafNodeText": leaf,
        "ContainerHierarchyTexts": list(containers),
    }


class Functional(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Folder(temporary.name)

    def report(self, launcher, *specs):
        folder = self.folder.make(f"results/functional/{launcher}")
        with open(f"{folder}/report.json", "w") as f:
            json.dump([{"SpecReports": specs}], f)

    def test_the_table_has_a_column_for_each_launcher(self):
        starts = spec("passed", "[test_id:1]should start", "[sig-compute] VM")
        entry = spec("passed", "with a port", "[sig-network] Networking", "[crit:high] keeps  addresses")
        self.report("ours", starts, entry, spec("skipped", "left out"), spec("passed", "", kind="BeforeSuite"))
        self.report("theirs", starts, spec("failed", "[test_id:2] should | stop", "[test_id:3]both"))
        self.assertEqual(
            list(functional.table(self.folder)),
            [
                "| Test | ours | theirs |",
                "|---|---|---|",
                "| 1 should start | passed | passed |",
                "| 3 2 should \\| stop | not run | failed |",
                "| keeps addresses with a port | passed | not run |",
            ],
        )

    def test_two_launchers_are_refused(self):
        self.folder.write("launchers.json", json.dumps({"node01": "a", "node02": "b"}))
        with self.assertRaises(SystemExit):
            functional.only_launcher(self.folder)
        self.folder.write("launchers.json", json.dumps({"node01": "a", "node02": "a"}))
        self.assertEqual(functional.only_launcher(self.folder), "a")

    def test_the_settings_are_the_scenarios_but_for_network_and_eviction(self):
        changed = functional.settings()["spec"]["configuration"]
        own = kubevirt.SETTINGS["spec"]["configuration"]
        self.assertIn("evictionStrategy", own)
        self.assertEqual({*own} ^ {*changed}, {"evictionStrategy", "network"})


if __name__ == "__main__":
    unittest.main()
