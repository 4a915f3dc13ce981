"""In a cluster: volumes that the kubelet brings, and those that virt-controller brings later."""

import os

from cluster import objects
from cluster.virtual_machine import Machine
from cluster.vm import pods_path
from kit import kube
from kit.kube import phase
from kit.objects import add_disk
from kit.registry import CLUSTER, scenario
from kit.steps import boot, end_by_deletion
from kit.volume_hotplug import find
from kit.wait import until
from scenarios.volumes import without_date

HOTPLUG_TIMEOUT = 120  # seconds: the scheduler, the kubelet and virt-handler have a part in it
DUMP_TIMEOUT = 240
IMAGE_SIZE = 48 << 20
TEXT = "from a cluster"
SERIAL = "plugged"  # KubeVirt's launcher writes serials in lower case
ATTACHMENT_PODS = "?labelSelector=kubevirt.io%3Dhotplug-disk"
# Serial of a disk -> the source of its volume, and what shows its content in the folder where the
# guest mounts it.
GENERATED = {
    "CONFIGMAP": ({"configMap": {"name": "texts"}}, "cat text"),
    "SECRET": ({"secret": {"secretName": "texts"}}, "cat text"),
    "ACCOUNT": ({"serviceAccount": {"serviceAccountName": "default"}}, "ls | cat"),
    "DOWNWARD": (
        {"downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        "grep compat labels",
    ),
}


@scenario(
    "a claim is plugged into a running VMI by addvolume, and unplugged by removevolume",
    "an attachment pod; Ready with a target; the guest writes and reads; then no disk, no status, no pod",
    place=CLUSTER,
)
def claim_hotplugged(session, result):
    folder = objects.claim(session, "plugged", "64Mi", IMAGE_SIZE)
    vm = session.vm("claim-hotplugged")
    boot(result, vm)
    source = {"persistentVolumeClaim": {"claimName": "plugged"}}
    disk = {"disk": {"bus": "scsi"}, "serial": SERIAL}
    result.step("addvolume", vm.put, "addvolume", {"name": "plugged", "disk": disk, "volumeSource": source})
    result.step("volume Ready", ready, vm)
    result.step("attachment pods", lambda: len(attachment_pods(session)))
    result.step("guest: the disk is there", until, "it", lambda: SERIAL in vm.shell("disks"), 20, 1)
    result.step("guest: writes and reads", vm.shell, write_and_read(device(SERIAL)))
    result.step("the claim has what the guest wrote", begin_of, f"{folder}/disk.img")
    result.step("removevolume", vm.put, "removevolume", {"name": "plugged"})
    result.step("no status", lambda: vm.wait("it", lambda vmi: not find(vmi, "plugged"), HOTPLUG_TIMEOUT) > 0)
    result.step(
        "guest: the disk is gone", until, "it", lambda: SERIAL not in vm.shell("disks"), HOTPLUG_TIMEOUT, 1
    )
    result.step("no attachment pod", until, "it", lambda: not attachment_pods(session), HOTPLUG_TIMEOUT, 1)
    end_by_deletion(result, vm)
    return vm


def ready(vm):
    """The volume's phase, and its target in the guest."""
    is_ready = lambda vmi: find(vmi, "plugged").get("phase") == "Ready"  # noqa: E731
    vm.wait("Ready", is_ready, HOTPLUG_TIMEOUT)
    return {key: vm.volume("plugged").get(key) for key in ("phase", "target")}


def attachment_pods(session):
    return kube.get(pods_path(session.namespace) + ATTACHMENT_PODS)["items"]


def device(serial):
    """For the guest's shell: the disk with this serial."""
    return f"/dev/$(disks | awk '$3 == \"{serial}\" {{ print $1 }}')"


def write_and_read(disk):
    return (
        f"d={disk}; echo hello | dd of=$d conv=fsync 2>/dev/null; echo 3 >/proc/sys/vm/drop_caches; "
        "dd if=$d bs=5 count=1 2>/dev/null"
    )


def begin_of(path):
    with open(path, "rb") as f:
        return f.read(5).decode(errors="replace")


@scenario(
    "a VM with an empty disk, disks of a ConfigMap, a Secret, a service account and the downward API, and a claim on SATA",
    "the guest reads what each is made of, and writes to the empty disk and the claim",
    place=CLUSTER,
)
def volumes_of_all_kinds(session, result):
    texts = {"text": TEXT}
    objects.apply(
        session,
        objects.config_map(session.namespace, "texts", texts),
        objects.secret(session.namespace, "texts", texts),
    )
    folder = objects.claim(session, "sata", "64Mi", IMAGE_SIZE)
    vm = session.vm("all-kinds", change=all_kinds)
    boot(result, vm)
    result.step("guest: disks", vm.shell, "disks | awk '{ print $1, $3, $4 }'")
    for serial, (_, command) in GENERATED.items():
        result.step(f"guest: {serial}", vm.shell, in_its_folder(serial, command))
    result.step("guest: EMPTY", vm.shell, write_and_read(device("EMPTY")))
    result.step("guest: claim", vm.shell, write_and_read("/dev/sda"))
    result.step("the claim has what the guest wrote", begin_of, f"{folder}/disk.img")
    end_by_deletion(result, vm)
    return vm


def all_kinds(vmi):
    vmi["metadata"]["labels"] = {"compat": "kinds"}
    add_disk(vmi, "empty", {"emptyDisk": {"capacity": "16Mi"}}, serial="EMPTY")
    for serial, (source, _) in GENERATED.items():
        add_disk(vmi, serial.lower(), source, serial=serial)
    add_disk(vmi, "claim", {"persistentVolumeClaim": {"claimName": "sata"}}, bus="sata")


def in_its_folder(serial, command):
    folder = f"/mnt/{serial}"
    return (
        f"mkdir -p {folder}; mount -t iso9660 -o ro {device(serial)} {folder}; (cd {folder} && {command}); "
        f"umount {folder}"
    )


@scenario("cloud-init's user-data comes from a Secret", "the guest reads it", place=CLUSTER)
def cloud_init_from_a_secret(session, result):
    user_data = f"#cloud-config\n# {TEXT}\n"
    objects.apply(session, objects.secret(session.namespace, "user-data", {"userdata": user_data}))
    seed = {"cloudInitNoCloud": {"secretRef": {"name": "user-data"}}}
    vm = session.vm("cloud-init", change=lambda vmi: add_disk(vmi, "seed", seed))
    boot(result, vm)
    result.step("guest: user-data", vm.shell, "seed user-data")
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a VM with a ConfigMap by virtiofs", "the guest mounts and reads it; the pod ends with 0", place=CLUSTER
)
def virtiofs_config_map(session, result):
    def change(vmi):
        vmi["spec"]["volumes"].append({"name": "shared", "configMap": {"name": "texts"}})
        vmi["spec"]["domain"]["devices"]["filesystems"] = [{"name": "shared", "virtiofs": {}}]

    objects.apply(session, objects.config_map(session.namespace, "texts", {"text": TEXT}))
    vm = session.vm("virtiofs", change=change)
    boot(result, vm)
    result.step(
        "guest: content", vm.shell, "mkdir -p /mnt/v; mount -t virtiofs shared /mnt/v; cat /mnt/v/text"
    )
    end_by_deletion(result, vm)
    result.step("pods are gone", vm.pod.until_gone)
    result.step("exit status", lambda: vm.record.exit_code)
    return vm


@scenario(
    "the memory of a VirtualMachine is dumped to a claim by memorydump",
    "phase Completed with the file's name; the claim has one ELF file of the guest's memory; the guest runs on",
    place=CLUSTER,
)
def machine_memory_dump(session, result):
    folder = objects.claim(session, "dump", "1Gi")
    vm = session.vm("machine-dump", create=False)
    with Machine(vm, "Always") as machine:
        boot(result, vm)
        result.step("memorydump", machine.put, "memorydump", {"claimName": "dump", "phase": ""})
        result.step("dump", dumped, machine)
        result.step("files", lambda: [described(f"{folder}/{name}") for name in os.listdir(folder)])
        result.step("guest answers", vm.shell, "echo hello")
        result.step("still Running", lambda: phase(vm.latest))
        machine.end(result)
    return vm


def dumped(machine):
    """What the VirtualMachine's status says of it in the end."""

    def request():
        found = kube.get(machine.path)["status"].get("memoryDumpRequest") or {}
        return found if found.get("phase") in ("Completed", "Failed") else None

    ended = until("the dump's end", request, DUMP_TIMEOUT, 1)
    return without_date({key: ended.get(key) for key in ("phase", "fileName", "message")})


def described(path):
    with open(path, "rb") as f:
        magic = f.read(4).decode(errors="replace")
    return {"magic": magic, "holds the memory": os.path.getsize(path) > 256 << 20}
