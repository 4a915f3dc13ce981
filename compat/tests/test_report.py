"""What `compare` ends with."""

import json
import os
import subprocess
import tempfile
import unittest

COMPAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REFERENCE = f"{COMPAT}/results/kubevirt-v1.9.0/1"


def compare(*arguments):
    return subprocess.run([f"{COMPAT}/compare", *arguments], stdout=subprocess.DEVNULL).returncode


class ExitStatus(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def change(self, **changed):
        """A launcher whose record of a scenario is the reference's but for this."""
        with open(f"{REFERENCE}/poweroff.json") as f:
            record = json.load(f)
        with open(f"{self.folder}/poweroff.json", "w") as f:
            json.dump({**record, **changed}, f)

    def test_equal(self):
        self.assertEqual(compare("--scenario", "poweroff", REFERENCE), 0)

    def test_nothing_to_compare(self):
        self.assertEqual(compare(self.folder), 1)

    def test_a_difference_counts_unless_it_may_pass(self):
        self.change(exit=1)
        self.assertEqual(compare(self.folder), 1)
        self.assertEqual(compare("--differences-pass", self.folder), 0)

    def test_a_step_that_fails_always_counts(self):
        self.change(failed=["pod ended"])
        self.assertEqual(compare(self.folder), 1)
        self.assertEqual(compare("--differences-pass", self.folder), 1)


if __name__ == "__main__":
    unittest.main()
