"""Volumes that come and go, memory dumps, and disks that boot from images."""

import os
import re
import shutil
import socket
import subprocess
import time

from kit.attachment_pod import AttachmentPod
from kit.image import USER
from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.volume_hotplug import attach, detach
from kit.wait import until


@scenario(
    "disks are attached and detached while the guest runs: files on SCSI and virtio, a block device; "
    "the VMI is deleted with one attached",
    "volume phases up to Ready and back, the target, and what the guest sees",
)
def disk_hotplug(session, result):
    vm = session.vm("disk-hotplug")
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks")
    log = session.folder + "/attachment-pod.log"
    for bus in ("scsi", "virtio"):
        pod = AttachmentPod(session.image, "hp-" + bus, log)
        result.step(f"attach a file, {bus}", attach_disk, vm, pod, bus=bus)
        time.sleep(1.5)
        result.step("guest: disks", vm.shell, "disks")
        result.data.setdefault("attached_status", status(vm.latest)["volumeStatus"])
        result.step("detach it", detach, vm, pod.volume, pod)
        result.step("guest: disks", vm.shell, "disks")
    device = loop_device("/run/block.img")
    try:
        pod = AttachmentPod(session.image, "hp-block", log, device=device)
        result.step("attach a block volume", attach_disk, vm, pod, mode="Block")
        time.sleep(1.5)
        result.step("guest: disks", vm.shell, "disks")
        result.step("detach it", detach, vm, pod.volume, pod)
    finally:
        subprocess.run(["losetup", "-d", device], check=False)
    pod = AttachmentPod(session.image, "hp-x", log)
    result.step("attach and leave", attach_disk, vm, pod)
    vm.delete()
    result.step("deleted with a disk attached", vm.gone)
    pod.remove()
    return vm


def attach_disk(vm, pod, mode="Filesystem", bus="scsi"):
    name = pod.volume
    return attach(
        vm,
        name,
        pod,
        {"persistentVolumeClaim": {"claimName": name, "hotpluggable": True}},
        "Ready",
        disk={"serial": "SerIal-" + name, "disk": {"bus": bus}},
        mode=mode,
    )


def loop_device(path, size=64 << 20):
    """Of a new sparse file. The node's /dev has no loop devices of its own."""
    with open(path, "wb") as f:
        f.truncate(size)
    for index in range(7, -1, -1):
        device = f"/dev/loop{index}"
        if not os.path.exists(device):
            os.mknod(device, 0o60660, os.makedev(7, index))
        if subprocess.run(["losetup", device, path], capture_output=True, check=False).returncode == 0:
            return device
    raise RuntimeError("no free loop device")


@scenario(
    "a memory dump to a hotplugged claim, twice; the guest runs on",
    "volume phases up to MemoryDumpCompleted with file name and times; an ELF file of the guest's memory",
)
def memory_dump(session, result):
    vm = session.vm("memory-dump")
    boot(result, vm)
    for attempt in ("", ", again"):
        pod = AttachmentPod(session.image, "dump", session.folder + "/attachment-pod.log", size=0)
        result.step("dump" + attempt, dump, vm, pod)
        result.step("file" + attempt, dump_file, vm, pod)
        result.step("guest answers" + attempt, vm.shell, "echo hello")
        result.step("detach" + attempt, detach, vm, "dump", pod)
        # The file's name has the second: a second dump by the same name is taken for the first.
        time.sleep(1)
    end_by_deletion(result, vm)
    return vm


def dump(vm, pod):
    done = attach(
        vm,
        "dump",
        pod,
        {"memoryDump": {"claimName": "dump", "hotpluggable": True}},
        "MemoryDumpCompleted",
        status={"memoryDumpVolume": {"claimName": "dump"}},
        timeout=60,
    )
    volume = vm.volume("dump")["memoryDumpVolume"]
    return without_date(
        {
            **done,
            "file": volume.get("targetFileName"),
            "started": bool(volume.get("startTimestamp")),
            "ended": bool(volume.get("endTimestamp")),
        }
    )


def dump_file(vm, pod):
    """Whether the claim has just the one file, its first bytes, and whether it is as large as the guest's memory."""
    folder = pod.claim_folder
    names = [name for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}")]
    with open(f"{folder}/{names[0]}", "rb") as f:
        magic = f.read(4)
    return {
        "files": len(names),
        "magic": magic.decode(errors="replace"),
        "holds the memory": os.path.getsize(f"{folder}/{names[0]}") > 256 << 20,
        "named in the status": vm.volume("dump")["memoryDumpVolume"].get("targetFileName") == names[0],
    }


def without_date(value):
    """virt-handler puts the time into the file's name."""
    if isinstance(value, dict):
        return {key: without_date(item) for key, item in value.items()}
    return re.sub(r"\d{8}-\d{6}", "<date>", value) if isinstance(value, str) else value


@scenario(
    "container-disk is copied into an image that has nothing but a disk, not even a libc",
    "it serves its socket, and ends with status 0 on SIGTERM",
)
def container_disk_program(session, result):
    root = "/run/foreign-root"
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(f"{root}/disk")
    os.makedirs(f"{root}/data", mode=0o777)
    os.chmod(f"{root}/data", 0o777)
    shutil.copy2(session.image.path("/usr/bin/container-disk"), f"{root}/container-disk")
    program = start_container_disk(root)
    result.step("socket", until, "its socket", lambda: is_served(f"{root}/data/disk_0.sock"), 10)
    result.step("status on SIGTERM", end_on_sigterm, program)


def start_container_disk(root):
    """As the kubelet starts the container of an image with a disk, after KubeVirt's init container has copied the program."""
    return subprocess.Popen(
        ["chroot", f"--userspec={USER}:{USER}", root, "/container-disk", "--copy-path", "/data/disk_0"]
    )


def is_served(path):
    """Whether somebody accepts connections on the socket."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
    except OSError:
        return False
    return True


def end_on_sigterm(program):
    program.terminate()
    try:
        return program.wait(10)
    finally:
        program.kill()


@scenario(
    "boots from a container disk, as an image volume",
    "Running; the guest can write, on the launcher's overlay",
)
def container_disk(session, result):
    def change(vmi):
        vmi["spec"]["volumes"][0] = {"name": "rootdisk", "containerDisk": {"image": "registry/guest:1"}}
        vmi["status"]["volumeStatus"][0] = {"name": "rootdisk", "target": ""}

    vm = session.vm("container-disk", change=change)
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks")
    result.step("guest: writes", vm.shell, "echo x >/data/x && sync && cat /data/x")
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm
