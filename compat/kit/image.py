"""Lays a launcher's image: the layers of an overlay, the last of which is a file system with Debian's packages or the
image's own."""

import os
import shutil

IMAGES = "/run/images"
USER = 107  # qemu, in every launcher image
PASSWD = f"qemu:x:{USER}:{USER}:qemu:/home/qemu:/bin/bash\n"
GROUP = f"qemu:x:{USER}:\n"
# cap_net_bind_service=+ep as the file system stores it, revision 2
NET_BIND_SERVICE = bytes.fromhex("0100000200040000000000000000000000000000")
MONITOR = "/usr/bin/virt-launcher-monitor"

# Where KubeVirt's image has the firmware -> where Debian's package ovmf has it
FIRMWARE = {
    "OVMF_CODE.fd": "OVMF_CODE_4M.fd",
    "OVMF_VARS.fd": "OVMF_VARS_4M.fd",
    "OVMF_CODE.secboot.fd": "OVMF_CODE_4M.secboot.fd",
    "OVMF_VARS.secboot.fd": "OVMF_VARS_4M.ms.fd",
}


class Image:
    """`layers`: folders for an overlay's lowerdir, the first one on top."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.top = f"{IMAGES}/{launcher.name}"
        base = launcher.rootfs or "/machine"
        self.layers = [self.top, base]
        self.modular_libvirt = is_program(f"{base}/usr/sbin/virtqemud") or is_program(
            f"{base}/usr/bin/virtqemud"
        )
        shutil.rmtree(self.top, ignore_errors=True)
        os.makedirs(self.top)
        lay(launcher, self.top)
        if not launcher.rootfs:
            self.adapt_to_debian()
        set_owners(self.top)

    def adapt_to_debian(self):
        """What KubeVirt's image has and this machine's packages lack."""
        for name, line in (("passwd", PASSWD), ("group", GROUP)):
            with open(f"/machine/etc/{name}") as f:
                others = [entry for entry in f if not is_qemu(entry)]
            os.makedirs(self.top + "/etc", exist_ok=True)
            with open(f"{self.top}/etc/{name}", "w") as f:
                f.writelines([*others, line])
        os.makedirs(self.top + "/usr/lib64/qemu-kvm", exist_ok=True)
        if not self.modular_libvirt:
            replace(self.top + "/usr/sbin/virtqemud")
            os.symlink("libvirtd", self.top + "/usr/sbin/virtqemud")
        for path, package in FIRMWARE.items():
            link = f"{self.top}/usr/share/edk2/ovmf/{path}"
            replace(link)
            os.symlink(f"../../OVMF/{package}", link)
        make_folder(self.top + "/home/qemu", 0o755)
        # libvirt's RPMs in KubeVirt's image have these 0751 qemu:qemu. In Debian's package they are
        # 0750 for a user of its own, and a launcher that is not root can make nothing in them.
        for path in ("/var/lib/libvirt/qemu", "/var/lib/libvirt/qemu/nvram"):
            make_folder(self.top + path, 0o751)

    def path(self, path):
        """A program of the image, as the node sees it; links are followed."""
        for layer in self.layers:
            if os.path.islink(layer + path):
                return self.path(os.path.join(os.path.dirname(path), os.readlink(layer + path)))
            if os.path.exists(layer + path):
                return layer + path
        raise FileNotFoundError(f"{path} in the image of {self.launcher.name}")


def lay(launcher, folder):
    """What the description names, into a folder: its files win over its trees, its links over both."""
    for tree in launcher.trees:
        shutil.copytree(tree, folder, symlinks=True, dirs_exist_ok=True)
    for path, source in launcher.files.items():
        replace(folder + path)
        shutil.copy2(source, folder + path)
    for path, target in launcher.links.items():
        replace(folder + path)
        os.symlink(target, folder + path)


def set_owners(tree):
    """What copying into an image's folder has lost: mode and owner of libvirt's hooks, the monitor's file capability."""
    hooks = tree + "/etc/libvirt/hooks"
    for path in (hooks, hooks + "/qemu"):
        if os.path.exists(path):
            os.chmod(path, 0o755)
            os.chown(path, USER, USER)
    monitor = tree + MONITOR
    if os.path.islink(monitor):  # a capability of its own needs a file of its own
        program = os.path.join(os.path.dirname(monitor), os.readlink(monitor))
        os.unlink(monitor)
        shutil.copy2(program, monitor)
    if os.path.exists(monitor):
        os.setxattr(monitor, "security.capability", NET_BIND_SERVICE)


def is_qemu(entry):
    """Of /etc/passwd or /etc/group."""
    name, _, number = entry.split(":")[:3]
    return name == "qemu" or number == str(USER)


def is_program(path):
    return os.path.exists(path) and not os.path.islink(path)


def replace(path):
    """Makes place for a file: its folder is there, and nothing by its name."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)


def make_folder(path, mode):
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    os.chown(path, USER, USER)
