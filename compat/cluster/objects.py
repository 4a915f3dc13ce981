"""Objects that VMs in the cluster use: claims, ConfigMaps, Secrets. What an earlier run has left is brought to this state."""

import base64
import json
import os
import shutil

from kit.image import USER

CLAIM_CLASS = "manual"  # nobody provisions it: each claim has a volume of its own from the beginning


def apply(session, *items):
    """Creates them, or changes them to this."""
    session.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def config_map(namespace, name, texts):
    """`texts`: key -> text."""
    return {**head("ConfigMap", namespace, name), "data": texts}


def secret(namespace, name, texts):
    """`texts`: key -> text. A key that an earlier version had and this one lacks goes."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {**head("Secret", namespace, name), "data": data}


def head(kind, namespace, name):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def claim(session, name, size, image=0):
    """A claim on an empty folder, which is returned: both nodes see it. `image`: bytes of the disk.img in it, if any."""
    folder = session.cluster.folder.make(f"shared/{session.namespace}-{name}")
    fill(folder, image)
    apply(session, *claim_and_volume(session.namespace, name, size, folder))
    return folder


def fill(folder, image):
    """Leaves nothing in it but a disk.img of that size."""
    shutil.rmtree(folder)
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    if not image:
        return
    path = f"{folder}/disk.img"
    with open(path, "wb") as f:
        f.truncate(image)
    os.chown(path, USER, USER)
    os.chmod(path, 0o660)


def claim_and_volume(namespace, name, size, folder):
    """They name each other: no other claim gets the volume."""
    volume = f"{namespace}-{name}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": CLAIM_CLASS}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **common,
                "capacity": {"storage": size},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": folder, "type": "Directory"},
                "claimRef": {"namespace": namespace, "name": name},
            },
        },
        {
            **head("PersistentVolumeClaim", namespace, name),
            "spec": {**common, "resources": {"requests": {"storage": size}}, "volumeName": volume},
        },
    ]
