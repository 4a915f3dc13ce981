"""Live migrations of VMs with storage beside their disk: hotplugged volumes, tracked blocks, firmware with variables."""

import os
import shutil
import time

from kit import kube, objects
from kit.migration_session import CLAIMS, MigratingVM, shared_folder
from kit.registry import TWO_NODES, scenario
from kit.remote_node import RemoteAttachmentPod
from kit.steps import end_by_deletion
from kit.volume_hotplug import attach, detach
from scenarios import backup
from scenarios.firmware import uefi
from scenarios.migration import boot, migrate, status_at_the_target

TRACKERS = "/apis/backup.kubevirt.io/v1alpha1/namespaces/default/virtualmachinebackuptrackers"


@scenario(
    "a guest with a hotplugged volume on a shared claim; then the volume is detached at the target",
    "the guest reads at the target what it wrote at the source; volume phases; the volume is gone from the target's pod",
    place=TWO_NODES,
)
def migrate_hotplugged_volume(session, result):
    volume, here = "hotplugged", session.nodes[0]
    folder = shared_folder(volume)

    def start_attachment_pod(node):
        return RemoteAttachmentPod(node, volume, folder, f"{session.folder}/attachment-pod-{node.name}.log")

    vm = MigratingVM(session, "migrate-hotplugged")
    try:
        boot(result, vm)
        pod = start_attachment_pod(here)
        vm.start_attachment_pod = start_attachment_pod
        result.step(
            "attach",
            attach,
            vm,
            volume,
            pod,
            {"persistentVolumeClaim": {"claimName": volume, "hotpluggable": True}},
            "Ready",
            disk={"serial": "hotplugged-01", "disk": {"bus": "scsi"}},
            access="ReadWriteMany",
        )
        time.sleep(1.5)
        result.step("guest: disks", vm.shell, "disks")
        result.step(
            "guest writes",
            vm.shell,
            "echo hello | dd of=/dev/sda bs=512 conv=sync,fsync 2>/dev/null && echo wr''itten",
        )
        migration = migrate(session, result, vm)
        pod.remove()
        result.step("target: guest: disks", vm.shell, "disks")
        result.step(
            "target: guest reads what it wrote",
            lambda: (
                "hello"
                in vm.shell("echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/sda bs=512 count=1 2>/dev/null")
            ),
        )
        status_at_the_target(result, vm)
        result.step("target: detach", detach, vm, volume, migration.attachment_pod)
        time.sleep(1.5)
        result.step("target: guest: disks without it", vm.shell, "disks")
        end_by_deletion(result, vm)
        return vm
    finally:
        vm.discard()
        shutil.rmtree(folder, ignore_errors=True)


@scenario(
    "a guest whose disk is tracked, with a full backup before and an incremental one at the target",
    "changedBlockTracking goes to Initializing and back to Enabled, the tracker asks for its checkpoint, and the increment is small",
    place=TWO_NODES,
)
def migrate_tracked_blocks(session, result):
    name, target = "migrate-tracked", backup.VOLUME
    here, there = session.nodes
    folder = shared_folder(target)
    vm = MigratingVM(session, name, change=backup.tracked, state=("cbt",))
    try:
        boot(result, vm)
        result.step("changedBlockTracking Enabled", backup.tracking_enabled, vm)
        pod = backup_target(result, vm, here, folder)
        result.step("full backup", backup.backup, vm, "full")
        first = vm.status["changedBlockTracking"]["backupStatus"]
        result.step("image of the full backup", backup.image, pod, "full")
        tracker = make_tracker(vm, first)
        backup.finish(vm)
        result.step("detach the backup's volume", detach, vm, target, pod)
        result.step("guest writes", vm.shell, "echo changed >/data/changed && sync && echo ok")
        mark = vm.recorder.mark()
        migrate(session, result, vm)
        result.step(
            "target: changedBlockTracking Enabled again",
            vm.wait,
            "Enabled",
            lambda vmi: vmi["status"]["changedBlockTracking"]["state"] == "Enabled",
            30,
        )
        result.step("states of changedBlockTracking", tracking_states, vm, mark)
        result.step("the tracker", lambda: kube.get(tracker)["status"].get("checkpointRedefinitionRequired"))
        checkpoint = kube.get(tracker)["status"]["latestCheckpoint"]
        result.step("redefine the checkpoint", vm.put, "redefine-checkpoint", checkpoint)
        pod = backup_target(result, vm, there, folder)
        result.step(
            "target: incremental backup", backup.backup, vm, "increment", incremental=checkpoint["name"]
        )
        result.step("image of the incremental backup", backup.image, pod, "increment")
        result.step(
            "the increment is smaller", lambda: backup.size(pod, "increment") < backup.size(pod, "full") / 4
        )
        backup.finish(vm)
        result.step("target: detach the backup's volume", detach, vm, target, pod)
        status_at_the_target(result, vm)
        end_by_deletion(result, vm)
        kube.delete(tracker)
        return vm
    finally:
        vm.discard()
        shutil.rmtree(folder, ignore_errors=True)


def backup_target(result, vm, node, folder):
    log = f"{vm.session.folder}/attachment-pod-{node.name}.log"
    pod = RemoteAttachmentPod(node, backup.VOLUME, folder, log, size=0)
    result.step(f"attach the backup's volume on {node.name}", backup.attach_target, vm, pod)
    return pod


def make_tracker(vm, backup_status):
    """virt-controller's record of the last checkpoint, which virt-handler marks after a migration."""
    checkpoint = {
        "name": backup_status["checkpointName"],
        "creationTime": backup_status["startTimestamp"],
        "volumes": backup_status["volumes"],
    }
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm.name}
    kube.create(
        TRACKERS,
        {
            "metadata": {"name": vm.name},
            "spec": {"source": source},
            "status": {"latestCheckpoint": checkpoint},
        },
    )
    return f"{TRACKERS}/{vm.name}"


def tracking_states(vm, mark):
    out = []
    for _, _, vmi in vm.recorder.versions[mark:]:
        state = (vmi["status"].get("changedBlockTracking") or {}).get("state")
        if not out or out[-1] != state:
            out.append(state)
    return out


@scenario(
    "a guest with a tablet, and CD-ROMs on SATA and SCSI that the launcher makes",
    "Succeeded; the guest goes on, and has both CD-ROMs",
    place=TWO_NODES,
)
def migrate_cdroms_and_tablet(session, result):
    def change(vmi):
        tablet = {"name": "tablet0", "type": "tablet", "bus": "usb"}
        vmi["spec"]["domain"]["devices"]["inputs"] = [tablet]
        for bus in ("sata", "scsi"):
            objects.add_disk(vmi, f"cd-{bus}", {"configMap": {"name": "cd"}}, bus=bus, kind="cdrom")

    vm = MigratingVM(session, "migrate-cdroms", change=change)
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks")
    migrate(session, result, vm)
    result.step("target: guest: disks", vm.shell, "disks")
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a guest whose UEFI variables are on a shared claim",
    "Succeeded; the variables' file in the claim, and the mark of a migration",
    place=TWO_NODES,
)
def migrate_persistent_state(session, result):
    name = "migrate-state"

    def change(vmi):
        uefi(vmi, persistent=True)
        vmi["status"]["volumeStatus"].append(
            {
                "name": "vm-state",
                "target": "",
                "persistentVolumeClaimInfo": {
                    "claimName": f"persistent-state-for-{name}",
                    "accessModes": ["ReadWriteMany"],
                    "volumeMode": "Filesystem",
                },
            }
        )

    vm = MigratingVM(session, name, change=change, state=("nvram",))
    boot(result, vm, timeout=120)
    migrate(session, result, vm)
    result.step("files in the claim", state_files, vm)
    status_at_the_target(result, vm)
    end_by_deletion(result, vm)
    return vm


def state_files(vm):
    folder = f"{CLAIMS}/{vm.state_claim}"
    found = [
        os.path.join(os.path.relpath(place, folder).split("/")[0], file)
        for place, _, files in os.walk(folder)
        for file in files
    ]
    return sorted(found)
