"""Volumes that come and go, and disks that boot from images."""

import os
import subprocess
import time

from kit.attachment_pod import AttachmentPod
from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.vm import VM


@scenario("disks are attached and detached while the guest runs: files on SCSI and virtio, a block device; "
          "the VMI is deleted with one attached",
          "volume phases up to Ready and back, the target, and what the guest sees")
def disk_hotplug(session, result):
    vm = VM(session, "disk-hotplug")
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks")
    log = session.folder + "/attachment-pod.log"
    for bus in ("scsi", "virtio"):
        name = "hp-" + bus
        pod = AttachmentPod(session.image, name, log)
        result.step(f"attach a file, {bus}", attach, vm, name, pod, "Filesystem", bus)
        time.sleep(1.5)
        result.step("guest: disks", vm.shell, "disks")
        result.data.setdefault("attached_status", status(vm.latest)["volumeStatus"])
        result.step("detach it", detach, vm, name, pod)
        result.step("guest: disks", vm.shell, "disks")
    device = loop_device("/run/block.img")
    try:
        pod = AttachmentPod(session.image, "hp-block", log, device=device)
        result.step("attach a block volume", attach, vm, "hp-block", pod, "Block")
        time.sleep(1.5)
        result.step("guest: disks", vm.shell, "disks")
        result.step("detach it", detach, vm, "hp-block", pod)
    finally:
        subprocess.run(["losetup", "-d", device], check=False)
    pod = AttachmentPod(session.image, "hp-x", log)
    result.step("attach and leave", attach, vm, "hp-x", pod, "Filesystem")
    vm.delete()
    result.step("deleted with a disk attached", vm.gone)
    pod.remove()
    return vm


def attach(vm, name, pod, mode, bus="scsi"):
    """virt-api's part: spec; virt-controller's part: status with the attachment pod."""
    def change(vmi):
        vmi["spec"]["domain"]["devices"]["disks"].append({"name": name, "serial": "SerIal-" + name, "disk": {"bus": bus}})
        vmi["spec"]["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}})
        vmi["status"]["volumeStatus"].append({
            "name": name, "target": "", "phase": "AttachedToNode", "reason": "SuccessfulCreate",
            "message": "Created hotplug attachment pod", "hotplugVolume": {"attachPodName": pod.name, "attachPodUID": pod.uid},
            "persistentVolumeClaimInfo": {"claimName": name, "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
                                          "capacity": {"storage": "64Mi"}}})
    mark, start = vm.recorder.mark(), time.time()
    vm.edit(change)
    vm.wait("Ready", lambda vmi: any(v["name"] == name and v.get("phase") == "Ready" and v.get("target")
                                     for v in vmi["status"]["volumeStatus"]), 30, mark)
    volume = vm.volume(name)
    return {"target": volume["target"], "message": volume["message"], "phases": volume_phases(vm, name),
            "seconds": round(time.time() - start, 1)}


def detach(vm, name, pod):
    def change(vmi):
        devices, spec = vmi["spec"]["domain"]["devices"], vmi["spec"]
        devices["disks"] = [disk for disk in devices["disks"] if disk["name"] != name]
        spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != name]

    def forget(vmi):
        vmi["status"]["volumeStatus"] = [v for v in vmi["status"]["volumeStatus"] if v["name"] != name]
    mark, start = vm.recorder.mark(), time.time()
    vm.edit(change)
    vm.wait("UnMountedFromPod", lambda vmi: any(v["name"] == name and v.get("phase") == "UnMountedFromPod"
                                                for v in vmi["status"]["volumeStatus"]), 40, mark)
    out = {"phases": volume_phases(vm, name), "seconds": round(time.time() - start, 1)}
    vm.edit(forget)
    pod.remove()
    return out


def volume_phases(vm, name):
    """Phase and target of a volume, each change once."""
    out = []
    for _, _, vmi in list(vm.recorder.versions):
        for volume in vmi["status"].get("volumeStatus", []):
            if volume["name"] == name:
                text = f"{volume.get('phase')} {volume.get('target', '')}".strip()
                if not out or out[-1] != text:
                    out.append(text)
    return out


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


@scenario("boots from a container disk, as an image volume", "Running; the guest can write, on the launcher's overlay")
def container_disk(session, result):
    def change(vmi):
        vmi["spec"]["volumes"][0] = {"name": "rootdisk", "containerDisk": {"image": "registry/guest:1"}}
        vmi["status"]["volumeStatus"][0] = {"name": "rootdisk", "target": ""}
    vm = VM(session, "container-disk", change=change)
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks")
    result.step("guest: writes", vm.shell, "echo x >/data/x && sync && cat /data/x")
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm
