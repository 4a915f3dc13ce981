"""Backups by changed block tracking, as virt-controller's backup controller drives them through virt-handler."""

import json
import os
import subprocess
import time

from kit import export_server, kube
from kit.attachment_pod import AttachmentPod
from kit.normalize import plain
from kit.registry import scenario
from kit.steps import boot, end_by_deletion
from kit.volume_hotplug import attach, detach

VOLUME = "backup-target"
# How much of a full backup is compared.
BEGIN = 64 << 20


def tracked(vmi):
    vmi["status"]["changedBlockTracking"] = {"state": "Initializing"}


@scenario(
    "a full backup and an incremental one to a hotplugged claim (push mode)",
    "changedBlockTracking Enabled; backupStatus completed with checkpoint and volumes; images with the right content",
)
def backup_push(session, result):
    vm = session.vm("backup-push", change=tracked, state=("cbt",))
    boot(result, vm)
    result.step("changedBlockTracking Enabled", tracking_enabled, vm)
    pod = AttachmentPod(session.image, VOLUME, session.folder + "/attachment-pod.log", size=0)
    result.step("attach the target", attach_target, vm, pod)
    result.step("full backup", backup, vm, "full")
    first = vm.status["changedBlockTracking"]["backupStatus"]
    result.step("image of the full backup", image, pod, "full")
    result.step("guest writes", vm.shell, "echo changed >/data/changed && sync && echo ok")
    result.step("incremental backup", backup, vm, "increment", incremental=first.get("checkpointName"))
    result.step("image of the incremental backup", image, pod, "increment")
    result.step("the increment is smaller", lambda: size(pod, "increment") < size(pod, "full") / 4)
    result.step("the same backup again", lambda: put(vm, "increment", "Start", "Push", started(vm)))
    result.step(
        "backup without a checkpoint of that name", backup, vm, "broken", incremental="no-such-checkpoint"
    )
    finish(vm)
    result.step("detach the target", detach, vm, VOLUME, pod)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a backup in pull mode is started and aborted", "backupStatus runs, then completed; the guest runs on"
)
def backup_pull(session, result):
    vm = session.vm("backup-pull", change=tracked, state=("cbt",))
    boot(result, vm)
    result.step("changedBlockTracking Enabled", tracking_enabled, vm)
    pod = AttachmentPod(session.image, VOLUME, session.folder + "/attachment-pod.log", size=0)
    result.step("attach the target", attach_target, vm, pod)
    result.step("start", start, vm, "pull", "Pull")
    time.sleep(2)
    result.step("export socket", lambda: os.path.exists(vm.pod.path("/run/kubevirt/sockets/backup-nbd-sock")))
    result.step("abort", lambda: put(vm, "pull", "Abort", None, started(vm)))
    result.step("completed", completed, vm, "pull")
    result.step("guest answers", vm.shell, "echo hello")
    finish(vm)
    result.step("detach the target", detach, vm, VOLUME, pod)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "backups in pull mode, in full and of what has changed, are read by KubeVirt's virt-exportserver",
    "the launcher's tunnel; the data is what QEMU serves, and the map has what the guest has written",
    lacks=export_server.lacks,
)
def backup_export(session, result):
    vm = session.vm("backup-export", change=tracked, state=("cbt",))
    boot(result, vm)
    result.step("changedBlockTracking Enabled", tracking_enabled, vm)
    pod = AttachmentPod(session.image, VOLUME, session.folder + "/attachment-pod.log", size=0)
    result.step("attach the target", attach_target, vm, pod)
    first = export(session, result, vm, "full")
    result.step("guest writes", vm.shell, "echo changed >/data/changed && sync && echo ok")
    export(session, result, vm, "increment", incremental=first.get("checkpointName"))
    finish(vm)
    result.step("detach the target", detach, vm, VOLUME, pod)
    end_by_deletion(result, vm)
    return vm


def export(session, result, vm, name, incremental=None):
    """backupStatus of a backup that the server has read."""
    result.step(f"start {name}", start, vm, name, "Pull", incremental, required=True)
    checkpoint = started_checkpoint(vm, name)
    bitmap = checkpoint if incremental else ""
    with export_server.ExportServer(vm.pod, session.folder, "rootdisk", bitmap) as server:
        result.step("export", put, vm, name, "Export", "Pull", started(vm), **server.options())
        result.step("tunnel", server.connected, required=True)
        extents = result.step("map", server.map, measured=True) or []
        disk = served(session, vm)
        size = os.stat(disk).st_size
        result.step("the map has the whole disk", lambda: sum(it[1] for it in extents) == size)
        parts = [(0, BEGIN)]
        if incremental:
            parts = [(it[0], it[1]) for it in extents if "dirty" in it[2]]
            changed = sum(length for _, length in parts)
            result.step("a part of it has changed", lambda: 0 < changed < size / 4)
        same = [server.data(*part) == part_of(disk, *part) for part in parts]
        result.step("the data is what QEMU serves", lambda: all(same) and bool(same))
        os.unlink(disk)
        result.step("abort", lambda: put(vm, name, "Abort", None, started(vm)))
        result.step("completed", completed, vm, name)
    return vm.status["changedBlockTracking"]["backupStatus"]


def started_checkpoint(vm, name):
    """As the launcher makes it of the backup's name and time, which is that of the bitmap too."""

    def is_written(vmi):
        return vmi["status"]["changedBlockTracking"].get("backupStatus", {}).get("backupName") == name

    vm.wait("backupStatus", is_written, 30, 0)
    return f"{name}-" + started(vm).rstrip("Z").replace("T", "_").replace(":", "-")


def served(session, vm):
    """A file with the disk, as QEMU serves it during the backup."""
    export = "nbd+unix:///rootdisk?socket=" + vm.pod.path("/run/kubevirt/sockets/backup-nbd-sock")
    file = f"{session.folder}/served.img"
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "raw", export, file], check=True)
    return file


def part_of(file, offset, length):
    with open(file, "rb") as f:
        f.seek(offset)
        return f.read(length)


def tracking_enabled(vm):
    vm.wait(
        "Enabled", lambda vmi: vmi["status"].get("changedBlockTracking", {}).get("state") == "Enabled", 30, 0
    )
    return vm.status["changedBlockTracking"]


def attach_target(vm, pod):
    return attach(vm, VOLUME, pod, {"claimName": VOLUME, "type": "Backup"}, "MountedToPod")


def put(vm, name, command, mode, start_time, incremental=None, **more):
    options = {
        "backupName": name,
        "cmd": command,
        "mode": mode,
        "backupStartTime": start_time,
        "incremental": incremental,
        "targetPath": f"/var/run/kubevirt/hotplug-disks/{VOLUME}" if command == "Start" else None,
        **more,
    }
    return vm.put("backup", {key: value for key, value in options.items() if value})


def start(vm, name, mode, incremental=None):
    """virt-controller asks first, and then writes the backup into the VMI's status."""
    start_time = kube.now()
    answer = put(vm, name, "Start", mode, start_time, incremental)

    def change(vmi):
        vmi["status"]["changedBlockTracking"]["backupStatus"] = {
            "backupName": name,
            "startTimestamp": start_time,
        }

    if answer.startswith("202"):
        vm.edit(change)
    return plain(answer)


def started(vm):
    return vm.status["changedBlockTracking"]["backupStatus"]["startTimestamp"]


def completed(vm, name):
    """backupStatus at its end, without times and with the name of the checkpoint without its time."""

    def check(vmi):
        found = vmi["status"]["changedBlockTracking"].get("backupStatus", {})
        return found.get("backupName") == name and found.get("completed")

    vm.wait("completed", check, 60)
    found = dict(vm.status["changedBlockTracking"]["backupStatus"])
    found["ended"] = bool(found.pop("endTimestamp", None))
    found.pop("startTimestamp")
    found["checkpointName"] = found.get("checkpointName", "").partition("-20")[0]
    return found


def backup(vm, name, incremental=None):
    answer = start(vm, name, "Push", incremental)
    if not answer.startswith("202"):
        return answer
    return {"answer": answer, **completed(vm, name)}


def finish(vm):
    """The backup controller forgets a backup that has ended."""
    vm.edit(lambda vmi: vmi["status"]["changedBlockTracking"].pop("backupStatus", None))


def path(pod, name):
    """Of the image of a backup; its folder is <VM>/<backup>-<time>."""
    found = [
        os.path.join(folder, file)
        for folder, _, files in os.walk(pod.claim_folder)
        for file in files
        if os.path.basename(folder).startswith(name + "-")
    ]
    if len(found) != 1:
        raise RuntimeError(
            f"not one image of the backup {name}, but {[os.path.relpath(f, pod.claim_folder) for f in found]}"
        )
    return found[0]


def image(pod, name):
    """What qemu-img says of it, and its place in the claim."""
    done = subprocess.run(
        ["qemu-img", "info", "--output=json", path(pod, name)], capture_output=True, text=True, check=True
    )
    info = json.loads(done.stdout)
    parts = os.path.relpath(path(pod, name), pod.claim_folder).split("/")
    return {
        "format": info["format"],
        "virtual size": info["virtual-size"],
        "file": parts[-1],
        "folders": len(parts) - 1,
    }


def size(pod, name):
    return os.stat(path(pod, name)).st_blocks
