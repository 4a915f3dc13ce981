"""Makes the images of the cluster and puts them into its nodes. What has not changed is not made again."""

import hashlib
import json
import mmap
import os
import re
import shutil
import subprocess

from cluster import images, kubevirt
from cluster.images import REGISTRY, Image
from kit.image import MONITOR, USER, lay, set_owners

PAUSE = f"{REGISTRY}/pause:1"
GUEST = f"{REGISTRY}/guest:1"
KERNEL = f"{REGISTRY}/guest-kernel:1"
PAUSE_SOURCE = """#include <signal.h>
#include <unistd.h>
static void end(int number) { _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
"""
# What virt-handler calls in its own image, and the launcher's lacks.
HANDLER_TOOLS = ("/usr/sbin/nft",)
SIDECAR_SHIM = "/usr/bin/sidecar-shim"
# Disks of KubeVirt's own tests -> switches of the test guest in them (docs/test-guest.md).
TEST_DISKS = {
    "alpine-container-disk-demo": "guest.login guest.no-agent",
    "alpine-with-test-tooling-container-disk": "guest.login",
    "fedora-with-test-tooling-container-disk": "guest.login",
}
COMMAND_LINE = slice(7 << 10, 8 << 10)  # that of the kernel which a BIOS boots, in the test guest's disk


class Builder:
    """`base`: the folder that `make image-tree` fills; every image stands on it."""

    def __init__(self, folder, base):
        self.folder, self.base = folder, base
        self.work = folder.make("images")

    def components(self, guest):
        """All images but the launchers'."""
        base = self.layer("base", self.base)
        yield Image(PAUSE, [self.layer("pause", self.pause())], "/pause")
        yield Image(GUEST, [self.layer("guest", self.container_disk(guest))])
        yield Image(KERNEL, [self.layer("guest-kernel", self.tree("guest-kernel", kernel_files(guest)))])
        for name in kubevirt.IMAGES:
            programs = {f"/usr/bin/{name}": self.folder / f"kubevirt/{name}"}
            user = "1001"
            if name == "virt-handler":
                programs["/usr/bin/virt-chroot"] = self.folder / "kubevirt/virt-chroot"
                programs.update(with_libraries(HANDLER_TOOLS, self.base))
                user = "0"
            layer = self.layer(name, self.tree(name, programs))
            yield Image(kubevirt.image(name), [base, layer], f"/usr/bin/{name}", user)

    def disks_of_tests(self, guest):
        """The images of KubeVirt's own tests, with the test guest in them."""
        for name, switches in TEST_DISKS.items():
            tree = self.container_disk(guest, name)
            add_to_command_line(f"{tree}/disk/guest.img", switches)
            yield Image(kubevirt.image(name), [self.layer(name, tree)])
        kernel, initrd = kernel_files(guest).values()
        files = {"/boot/vmlinuz-virt": kernel, "/boot/initramfs-virt": initrd}
        boot = self.layer("alpine-kernel", self.tree("alpine-kernel", files))
        yield Image(kubevirt.image("alpine-ext-kernel-boot-demo"), [boot])

    def launcher(self, launcher, *tags):
        """A launcher's image, once for each tag; at the end its sidecar-shim as an image."""
        name = f"launcher-{launcher.name}"
        tree = self.tree(name, {})
        lay(launcher, tree)
        set_owners(tree)
        base = (
            self.layer(f"{name}-rootfs", launcher.rootfs)
            if launcher.rootfs
            else self.layer("base", self.base)
        )
        layers = [base, self.layer(name, tree)]
        return [
            *(
                Image(kubevirt.image("virt-launcher", tag), layers, MONITOR, environment=launcher.environment)
                for tag in tags
            ),
            Image(kubevirt.image("sidecar-shim"), layers, SIDECAR_SHIM),
        ]

    def pause(self):
        tree = self.tree("pause", {})
        subprocess.run(
            ["gcc", "-O2", "-static", "-x", "c", "-", "-o", f"{tree}/pause"],
            input=PAUSE_SOURCE,
            text=True,
            check=True,
        )
        return tree

    def container_disk(self, guest, name="guest"):
        tree = self.tree(name, {"/disk/guest.img": guest})
        os.chown(f"{tree}/disk", USER, USER)
        os.chown(f"{tree}/disk/guest.img", USER, USER)
        return tree

    def tree(self, name, files):
        """An empty folder with these files: path in it -> file here."""
        tree = f"{self.work}/trees/{name}"
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(tree)
        for path, source in files.items():
            os.makedirs(os.path.dirname(tree + path), exist_ok=True)
            shutil.copy2(source, tree + path)
        return tree

    def layer(self, name, tree):
        """Packed anew where anything in the folder has another size or time than when it was packed."""
        archive, mark = f"{self.work}/{name}.layer.tar", f"images/{name}.layer"
        state = fingerprint(tree)
        known = json.loads(self.folder.read(mark) or "{}")
        if known.get("state") == state and os.path.exists(archive):
            return images.Layer(archive, known["digest"], known["size"])
        layer = images.layer(tree, archive)
        self.folder.write(mark, json.dumps({"state": state, "digest": layer.digest, "size": layer.size}))
        return layer

    def load(self, node, image):
        """Into a node, unless it has exactly this image."""
        listed = node.run(["ctr", "-n", "k8s.io", "images", "ls", f"name=={image.name}"])
        if image.digest in listed:
            return
        archive = f"{self.work}/{node.name}.tar"
        image.write(archive)
        node.run(["ctr", "-n", "k8s.io", "images", "import", archive], timeout=300)
        by_digest = f"{image.name.rpartition(':')[0]}@{image.digest}"
        node.run(["ctr", "-n", "k8s.io", "images", "tag", "--force", image.name, by_digest])
        os.unlink(archive)


def kernel_files(guest):
    """Path in the image -> file: what scripts/test-guest puts beside the guest's disk."""
    folder = os.path.dirname(os.path.realpath(guest))
    return {f"/boot/{name}": f"{folder}/{name}" for name in ("vmlinuz", "initrd.img")}


def add_to_command_line(disk, words):
    """To that of the kernel which a BIOS boots from this disk."""
    with open(disk, "r+b") as file:
        place = mmap.mmap(file.fileno(), COMMAND_LINE.stop)
        line = place[COMMAND_LINE].rstrip(b"\0") + f" {words}".encode()
        # With the zero that ends it.
        place[COMMAND_LINE] = (line + b"\0").ljust(COMMAND_LINE.stop - COMMAND_LINE.start, b"\0")


def with_libraries(programs, base):
    """Path in the image -> file here, of programs of this machine and the shared libraries that `base` lacks."""
    files = {}
    for program in programs:
        files[program] = program
        for line in subprocess.run(
            ["ldd", program], capture_output=True, text=True, check=True
        ).stdout.splitlines():
            found = re.search(r"=> (/\S+)", line)
            if found and not os.path.exists(f"{base}/usr/lib/x86_64-linux-gnu/{os.path.basename(found[1])}"):
                files[f"/usr/lib/x86_64-linux-gnu/{os.path.basename(found[1])}"] = os.path.realpath(found[1])
    return files


def fingerprint(tree):
    """Changes with any name, owner or mode, and with the size or time of a file."""
    state = hashlib.sha256()
    for folder, folders, files in os.walk(tree):
        folders.sort()
        for name in [".", *sorted(files)]:
            entry = os.lstat(os.path.join(folder, name))
            content = "" if name == "." else f"{entry.st_size} {entry.st_mtime_ns}"
            state.update(f"{folder}/{name} {entry.st_mode} {entry.st_uid} {content}\n".encode())
    return state.hexdigest()
