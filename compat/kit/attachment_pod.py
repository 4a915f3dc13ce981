"""The pod that virt-controller starts for a hotplugged volume, so that the kubelet mounts the claim on the node."""

import os
import shutil
import uuid

from kit import mounts
from kit.container import Container, non_root_identity
from kit.image import USER
from kit.launcher_pod import PODS
from kit.wait import until


class AttachmentPod:
    """`device`: a block device instead of a claim with a file system of `size` bytes' disk.img (no file if 0).
    `shared`: the claim's folder, if several nodes see it."""

    def __init__(self, image, volume, log, size=64 << 20, device=None, shared=None):
        self.uid, self.volume = str(uuid.uuid4()), volume
        self.name = "hp-volume-" + self.uid[:5]
        self.folder = f"{PODS}/{self.uid}"
        place = f"{self.folder}/volumes/kubernetes.io~empty-dir/hotplug-disks"
        os.makedirs(place)
        os.chmod(place, 0o777)
        volumes = [(place, "/path", "")]
        if device:
            os.makedirs(f"{place}/{volume}")
            os.mknod(f"{place}/{volume}/{self.uid}", 0o60660, os.stat(device).st_rdev)
        else:
            volumes.append((self.claim(volume, size, shared), f"/{volume}", ""))
        command = ["/bin/sh", "-c", "/usr/bin/container-disk --copy-path /path/hp"]
        self.container = Container(
            self.name,
            image,
            command,
            cgroup=self.uid,
            volumes=volumes,
            log=log,
            identity=non_root_identity(),
            hostname=self.name,
        )
        until("the attachment pod's hp.sock", lambda: os.path.exists(f"{place}/hp.sock"), 10)

    def claim(self, volume, size, shared):
        self.claim_folder = f"{self.folder}/volumes/kubernetes.io~local-volume/pvc-{volume}"
        os.makedirs(self.claim_folder)
        # A file system of its own, as a claim has: virt-handler searches for its mount.
        if shared:
            mounts.bind(shared, self.claim_folder)
        else:
            mounts.mount_tmpfs(self.claim_folder, f"mode=2777,gid={USER},size=1g")
        image = self.claim_folder + "/disk.img"
        if size and not os.path.exists(image):
            with open(image, "wb") as f:
                f.truncate(size)
            os.chown(image, 0, USER)
            os.chmod(image, 0o660)
        return self.claim_folder

    def remove(self):
        self.container.remove()
        mounts.unmount_below(self.folder)
        if mounts.below(self.folder):
            raise RuntimeError(f"{self.folder}: a claim is still mounted")  # rmtree would empty it
        shutil.rmtree(self.folder, ignore_errors=True)
