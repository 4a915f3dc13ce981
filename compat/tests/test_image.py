"""Where a program of an image is."""

import os
import sys
import tempfile
import unittest
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kit.image import Image  # noqa: E402


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.image = Image.__new__(Image)
        self.image.launcher = SimpleNamespace(name="a")
        self.image.layers = [folder.name + "/top", folder.name + "/base"]
        for layer in self.image.layers:
            os.makedirs(layer + "/bin")

    def add(self, layer, path):
        open(self.image.layers[layer] + path, "w").close()
        return self.image.layers[layer] + path

    def test_the_upper_layer_comes_first(self):
        base = self.add(1, "/bin/a")
        self.assertEqual(self.image.path("/bin/a"), base)
        top = self.add(0, "/bin/a")
        self.assertEqual(self.image.path("/bin/a"), top)

    def test_a_link_is_followed_through_the_layers(self):
        base = self.add(1, "/bin/tools")
        os.symlink("tools", self.image.layers[0] + "/bin/a")
        self.assertEqual(self.image.path("/bin/a"), base)

    def test_what_is_missing_is_named(self):
        with self.assertRaisesRegex(FileNotFoundError, "/bin/b in the image of a"):
            self.image.path("/bin/b")


if __name__ == "__main__":
    unittest.main()
