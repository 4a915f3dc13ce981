"""Images as archives that containerd imports: each layer is a folder."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from dataclasses import dataclass

REGISTRY = "registry.local"  # of no network: every image is imported
CHUNK = 1 << 20  # bytes
OCI = "application/vnd.oci.image"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Layer:
    file: str  # a tar archive
    digest: str
    size: int

    @property
    def descriptor(self):
        return {"mediaType": f"{OCI}.layer.v1.tar", "digest": self.digest, "size": self.size}


def layer(folder, archive):
    """Packs a folder with owners, modes and file capabilities; `archive` is the file that is made."""
    words = "--numeric-owner --xattrs --xattrs-include=* --format=posix --sort=name".split()
    times = "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"
    subprocess.run(["tar", "-C", folder, *words, times, "-cf", archive, "."], check=True)
    return Layer(archive, digest_of(archive), os.path.getsize(archive))


def digest_of(file):
    digest = hashlib.sha256()
    with open(file, "rb") as f:
        while chunk := f.read(CHUNK):
            digest.update(chunk)
    return "sha256:" + digest.hexdigest()


class Image:
    """`user`: whom a pod gets that names none but must not be root. `digest`: migrations pull a container disk by it."""

    def __init__(self, name, layers, entrypoint=None, user="", environment=()):
        self.name, self.layers = name, layers
        config = blob(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "Env": [PATH, *(f"{name}={value}" for name, value in dict(environment).items())],
                    "User": user,
                    **({"Entrypoint": [entrypoint]} if entrypoint else {}),
                },
                "rootfs": {"type": "layers", "diff_ids": [each.digest for each in layers]},
            }
        )
        manifest = blob(
            {
                "schemaVersion": 2,
                "mediaType": f"{OCI}.manifest.v1+json",
                "config": described(f"{OCI}.config.v1+json", config),
                "layers": [each.descriptor for each in layers],
            }
        )
        self.blobs = [config, manifest]
        self.digest = manifest[0]

    def write(self, archive):
        """As an OCI archive."""
        described_manifest = described(f"{OCI}.manifest.v1+json", self.blobs[1])
        described_manifest["annotations"] = {
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rpartition(":")[2],
        }
        index = {"schemaVersion": 2, "manifests": [described_manifest]}
        with tarfile.open(archive, "w") as tar:
            add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            add(tar, "index.json", json.dumps(index).encode())
            for digest, data in self.blobs:
                add(tar, blob_path(digest), data)
            for each in {each.digest: each for each in self.layers}.values():
                entry = tarfile.TarInfo(blob_path(each.digest))
                entry.size = each.size
                with open(each.file, "rb") as f:
                    tar.addfile(entry, f)


def blob(document):
    data = json.dumps(document).encode()
    return "sha256:" + hashlib.sha256(data).hexdigest(), data


def described(kind, found):
    digest, data = found
    return {"mediaType": kind, "digest": digest, "size": len(data)}


def blob_path(digest):
    return "blobs/" + digest.replace(":", "/")


def add(tar, name, data):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
