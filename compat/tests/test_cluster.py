"""The parts of a cluster that need neither root nor Kubernetes."""

import json
import os
import tarfile
import tempfile
import unittest
from unittest import mock

from cluster import images, kubevirt, objects
from cluster.build import COMMAND_LINE, add_to_command_line, fingerprint
from cluster.folder import Folder
from scenarios.cluster_agent import metric_names


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


    def test_a_disk_for_tests_tells_its_kernel_more(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = f"{folder}/disk"
            with open(disk, "wb") as f:
                f.seek(COMMAND_LINE.start)
                f.write(b"quiet")
                f.truncate(1 << 20)
            add_to_command_line(disk, "guest.login")
            with open(disk, "rb") as f:
                text = f.read()[COMMAND_LINE]
            self.assertEqual(text.rstrip(b"\0"), b"quiet guest.login")
            with self.assertRaises(IndexError):
                add_to_command_line(disk, "x" * 1024)


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
            self.assertEqual(variables["SIDECAR_SHIM_IMAGE"], "registry.local/kubevirt/sidecar-shim:v1.9.0")


class Objects(unittest.TestCase):
    def test_a_claim_and_its_volume_name_each_other(self):
        volume, claim = objects.claim_and_volume("space", "disk", "64Mi", "/shared/space-disk")
        self.assertEqual(volume["spec"]["claimRef"], {"namespace": "space", "name": "disk"})
        self.assertEqual(claim["spec"]["volumeName"], volume["metadata"]["name"])
        self.assertEqual(claim["spec"]["storageClassName"], volume["spec"]["storageClassName"])

    def test_a_claims_folder_has_nothing_of_an_earlier_run(self):
        with tempfile.TemporaryDirectory() as path:
            folder = f"{path}/claim"
            os.mkdir(folder)
            open(f"{folder}/earlier", "w").close()
            with mock.patch("os.chown"):
                objects.fill(folder, 4096)
            self.assertEqual(os.listdir(folder), ["disk.img"])
            self.assertEqual(os.path.getsize(f"{folder}/disk.img"), 4096)
            objects.fill(folder, 0)
            self.assertEqual(os.listdir(folder), [])

    def test_a_secret_is_encoded(self):
        self.assertEqual(objects.secret("space", "keys", {"first": "text"})["data"], {"first": "dGV4dA=="})


class Metrics(unittest.TestCase):
    def test_only_the_vms_own_samples_count(self):
        text = (
            '# HELP kubevirt_vmi_info about name="mine"\n'
            'kubevirt_vmi_info{name="mine",node="a"} 1\n'
            'kubevirt_vmi_vcpu_seconds_total{id="0",name="mine"} 2\n'
            'kubevirt_vmi_vcpu_seconds_total{id="1",name="mine"} 2\n'
            'kubevirt_vmi_phase_count{name="another"} 1\n'
            'go_threads{name="mine"} 1\n'
        )
        self.assertEqual(metric_names(text, "mine"), {"kubevirt_vmi_info", "kubevirt_vmi_vcpu_seconds_total"})


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
