"""Descriptions of launchers, and the list of scenarios in README.md."""

import os
import subprocess
import sys
import tempfile
import unittest

COMPAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, COMPAT)

from kit import launcher  # noqa: E402


class Descriptions(unittest.TestCase):
    def read(self, text, **variables):
        with tempfile.TemporaryDirectory() as folder:
            open(f"{folder}/program", "w").close()
            with open(f"{folder}/launcher.toml", "w") as f:
                f.write(text)
            os.environ.update(variables)
            return launcher.read(f"{folder}/launcher.toml"), folder

    def refused(self, text, reason):
        with self.assertRaises(launcher.DescriptionError) as caught:
            self.read(text)
        self.assertIn(reason, str(caught.exception))

    def test_paths_are_relative_to_the_file(self):
        found, folder = self.read(
            'name = "a"\n[files]\n"/usr/bin/virt-launcher" = "program"\n[environment]\nA = "$B"'
        )
        self.assertEqual(found.files, {"/usr/bin/virt-launcher": os.path.realpath(f"{folder}/program")})
        self.assertEqual(found.environment, {"A": "$B"})

    def test_variables(self):
        found, folder = self.read('name = "a"\ntrees = ["$COMPAT_TEST_FOLDER"]', COMPAT_TEST_FOLDER="/usr")
        self.assertEqual(found.trees, ["/usr"])

    def test_what_is_refused(self):
        self.refused('name = "a"\n[files]\n"/x" = "no-such-file"', "missing: ")
        self.refused('name = "a"\nprograms = []', "unknown key 'programs'")
        self.refused('name = "A B"', "invalid name")
        self.refused('name = "a"\ntrees = ["$NO_SUCH_VARIABLE"]', "the variable is not set")
        self.refused("name =", "launcher.toml")


class Documentation(unittest.TestCase):
    def test_readme_has_all_scenarios(self):
        done = subprocess.run(
            [f"{COMPAT}/run", "--list", "--markdown"], capture_output=True, text=True, check=True
        )
        with open(f"{COMPAT}/README.md") as f:
            self.assertIn(
                done.stdout.strip(), f.read(), "README.md differs from compat/run --list --markdown"
            )


if __name__ == "__main__":
    unittest.main()
