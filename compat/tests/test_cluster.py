"""The parts of a cluster that need neither root nor Kubernetes."""

import json
import os
import tarfile
import tempfile
import unittest

from cluster import images, kubevirt
from cluster.build import fingerprint
from cluster.folder import Folder


class Images(unittest.TestCase):
    def test_an_archive_has_all_blobs_that_its_index_names(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = os.path.join(folder, "tree")
            os.makedirs(tree)
            with open(f"{tree}/file", "w") as f:
                f.write("content")
            layer = images.layer(tree, f"{folder}/layer.tar")
            image = images.Image("registry.local/name:tag", [layer, layer], "/entry", "1001")
            image.write(f"{folder}/image.tar")
            with tarfile.open(f"{folder}/image.tar") as tar:
                (listed,) = json.load(tar.extractfile("index.json"))["manifests"]
                self.assertEqual(listed["digest"], image.digest)
                self.assertEqual(listed["annotations"]["io.containerd.image.name"], "registry.local/name:tag")
                manifest = json.load(tar.extractfile(images.blob_path(listed["digest"])))
                config = json.load(tar.extractfile(images.blob_path(manifest["config"]["digest"])))
                self.assertEqual(config["config"]["User"], "1001")
                self.assertEqual(config["rootfs"]["diff_ids"], [layer.digest, layer.digest])
                for each in manifest["layers"]:
                    self.assertEqual(tar.getmember(images.blob_path(each["digest"])).size, each["size"])

    def test_a_layer_is_packed_anew_when_anything_in_it_changes(self):
        with tempfile.TemporaryDirectory() as tree:
            path = os.path.join(tree, "file")
            open(path, "w").close()
            seen = {fingerprint(tree)}
            self.assertIn(fingerprint(tree), seen)
            for change in (
                lambda: os.chmod(path, 0o600),
                lambda: os.truncate(path, 1),
                lambda: os.mkdir(tree + "/new"),
            ):
                change()
                self.assertNotIn(fingerprint(tree), seen)
                seen.add(fingerprint(tree))


class Manifests(unittest.TestCase):
    def test_the_release_template_is_filled_and_gets_our_deployment(self):
        with tempfile.TemporaryDirectory() as path:
            for name, text in (
                (
                    "release/kubevirt-operator.yaml.in",
                    'namespace: {{.Namespace}}\n{{index .GeneratedManifests "kv-resource.yaml"}}\n---\n'
                    "apiVersion: apps/v1\nkind: Deployment\nspec: {{.OperatorDeploymentSpec}}\n",
                ),
                ("generated/kv-resource.yaml", "kind: CustomResourceDefinition"),
            ):
                os.makedirs(os.path.dirname(f"{path}/manifests/{name}"), exist_ok=True)
                with open(f"{path}/manifests/{name}", "w") as f:
                    f.write(text)
            text, _, deployment = kubevirt.manifests(Folder(path), "mine").rpartition("---\n")
            self.assertEqual(text, "namespace: kubevirt\nkind: CustomResourceDefinition\n")
            (container,) = json.loads(deployment)["spec"]["template"]["spec"]["containers"]
            variables = {each["name"]: each.get("value") for each in container["env"]}
            self.assertEqual(variables["VIRT_LAUNCHER_IMAGE"], "registry.local/kubevirt/virt-launcher:mine")
            self.assertEqual(variables["VIRT_API_IMAGE"], "registry.local/kubevirt/virt-api:v1.9.0")


class Missing(unittest.TestCase):
    def test_an_empty_folder_lacks_every_program(self):
        with tempfile.TemporaryDirectory() as path:
            lacks = "\n".join(Folder(path).missing())
        for name in (
            "bin (Kubernetes 1.34)",
            "cni (CNI plugins 1.x)",
            "virt-operator in ",
            "kv-resource.yaml",
        ):
            self.assertIn(name, lacks)


if __name__ == "__main__":
    unittest.main()
