"""SIGKILL, SIGSEGV or SIGABRT to a launcher that is started again, in each place of its life on one node."""

import hashlib
import signal
import time

from kit import sidecar
from kit.attachment_pod import AttachmentPod
from kit.launcher_deaths import BEGINS, LOST_CALL, Deaths, counted, never_starts_again
from kit.pod_network import PodNetwork, make_bridge
from kit.registry import scenario
from kit.steps import boot, end_after_final_phase, works
from kit.volume_hotplug import detach
from kit.wait import until
from scenarios import backup, interfaces, volumes
from scenarios.migration_devices import HOOK, PRODUCT
from scenarios.network import interface
from scenarios.virt_handler_restart import power_off_by_socket

RUNS_ON = "the guest runs on; virt-handler sees Running, and no event but LauncherRestarted"
SHUTDOWN_EVENTS = ("ShuttingDown", "Deleted", "Stopped")
HOTPLUG_EVENTS = ("VolumeMountedToPod", "VolumeReady", "VolumeUnMountedFromPod")
# Of a VM whose first launcher died before it ran.
FIRST_EVENTS = ("Created", "Started")
FIRST_CONDITIONS = ("LiveMigratable", "StorageLiveMigratable", "AgentConnected")
GRACE = 20  # seconds
SIDECARS_LATE = 30  # seconds; their images are pulled. The monitor gives a launcher with a guest 25 s.


def death(does, expects=RUNS_ON, lacks=lambda session: None, **options):
    """A scenario that only a launcher that is started again can pass."""
    return scenario(
        does, expects, lacks=lambda session: never_starts_again(session) or lacks(session), **options
    )


def running(session, result, name, **options):
    """A VM with its guest up, and the deaths of its launchers."""
    vm = session.vm(name, **options)
    boot(result, vm)
    vm.shell("true")
    time.sleep(2)  # virt-handler has heard what the agent says first
    return vm, Deaths(vm), identity(vm)


def identity(vm):
    """Another QEMU or another boot has another one."""
    return vm.pod.guests(), vm.shell("cat /proc/sys/kernel/random/boot_id")


def same_guest(vm, before):
    if identity(vm) != before:
        raise RuntimeError(f"{identity(vm)} was {before}")
    return True


def goes_on(result, vm, deaths, guest, events=(), conditions=()):
    """virt-handler has seen nothing but what the scenario did; the same guest runs, and ends as any other."""
    deaths.check(result, events, conditions)
    result.step("the guest ran on", same_guest, vm, guest)
    works(result, vm, "afterwards")
    deaths.end(result)


@death(
    "SIGKILL to the launcher while it waits for its sidecars",
    "the next one waits for them too; Running, with the sidecar's change",
)
def launcher_dies_before_sidecars(session, result):
    def change(vmi):
        vmi["metadata"]["annotations"][sidecar.ANNOTATION] = '[{"args": ["--version", "v1alpha3"]}]'

    vm = session.vm("dies-before-sidecars", change=change, hooks=[HOOK], late_hooks=True)
    deaths = Deaths(vm)
    until("the launcher", lambda: vm.pod.pids("virtqemud"), 20)
    time.sleep(2)
    deaths.die(signal.SIGKILL)
    result.step("another launcher", deaths.back, BEGINS, measured=True)
    time.sleep(SIDECARS_LATE)
    vm.pod.start_sidecars()
    result.step("it serves", deaths.back, measured=True)
    boot(result, vm)
    result.step("guest: the product", lambda: PRODUCT in vm.shell("cat /sys/class/dmi/id/product_name"))
    result.step("calls", vm.pod.hook_calls)
    deaths.check(result, (*FIRST_EVENTS, LOST_CALL), FIRST_CONDITIONS)
    works(result, vm, "afterwards")
    deaths.end(result)
    return vm


@death(
    "SIGSEGV to the launcher between libvirt's define and create", "the next one starts the guest: Running"
)
def launcher_dies_between_define_and_create(session, result):
    vm = session.vm("dies-in-start")
    deaths = Deaths(vm)
    result.step("kill", deaths.at, "Domain defined.", signal.SIGSEGV)
    result.step("it had not created the domain", deaths.came_before, "Domain started.")
    boot(result, vm)
    deaths.check(result, (*FIRST_EVENTS, LOST_CALL), FIRST_CONDITIONS)
    works(result, vm, "afterwards")
    deaths.end(result)
    return vm


@death("SIGABRT and SIGKILL to the launcher in a sync that attaches a disk, and in one that detaches it")
def launcher_dies_in_hotplug(session, result):
    vm, deaths, guest = running(session, result, "dies-in-hotplug")
    pod = AttachmentPod(session.image, "data", session.folder + "/attachment-pod.log")
    result.step(
        "attach", deaths.at, "Attaching disk", signal.SIGABRT, lambda: volumes.attach_disk(vm, pod)
    )
    result.step("it died in the sync", deaths.came_before, "Synced vmi")
    written = result.step("guest writes", write, vm, "data", measured=True)
    image = pod.claim_folder + "/disk.img"
    copy = open(image, "rb")  # detach removes the claim
    result.step("detach", deaths.at, "Detaching disk", signal.SIGKILL, lambda: detach(vm, "data", pod))
    result.step("it died in the sync", deaths.came_before, "Synced vmi")
    result.step("the disk has what the guest wrote", has_content, copy, written)
    result.step("guest: disks", vm.shell, "disks")
    goes_on(result, vm, deaths, guest, (*HOTPLUG_EVENTS, LOST_CALL))
    return vm


def write(vm, volume):
    """Fills the hotplugged disk with chance bytes, and returns the guest's hash of what it then reads back."""
    serial = f"SerIal-{volume}"
    name = f"$(disks | awk '$3 == \"{serial}\" {{print $1}}')"
    vm.shell(f"D=/dev/{name}; dd if=/dev/urandom of=$D bs=1M conv=fsync 2>/dev/null; sync", 120)
    return vm.shell("echo 3 >/proc/sys/vm/drop_caches; sha256sum <$D", 120).split()[0]


def has_content(file, expected):
    with file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise RuntimeError(f"{found} is not {expected}")
    return True


@death("SIGABRT to the launcher before a network interface is attached by bridge, and detached")
def launcher_dies_before_interface_hotplug(session, result):
    with PodNetwork("dieswithnic", host=11) as network:
        make_bridge("net-blue", ["10.20.0.1/24"])
        vm, deaths, guest = running(
            session,
            result,
            "dies-before-nic",
            change=lambda vmi: interface(vmi, "default", "masquerade", {"pod": {}}),
            network=network.name,
        )
        result.step("kill", deaths.kill, signal.SIGABRT, measured=True)
        network.plug_network("blue", "net-blue", mac="02:00:00:00:03:01")
        result.step("attach", interfaces.attach, vm, "bridge")
        time.sleep(3)
        result.step("guest pings a peer in the network", interfaces.guest_pings_blue, vm)
        result.step("detach", interfaces.detach, vm)
        time.sleep(2)
        result.step("links in the pod afterwards", network.links_inside)
        network.unplug_network("blue")
        vm.edit(interfaces.forget)
        goes_on(result, vm, deaths, guest)
        return vm


@death("SIGSEGV to the launcher while the guest's file systems are frozen; again, with a timeout")
def launcher_dies_while_frozen(session, result):
    vm, deaths, guest = running(session, result, "dies-frozen")

    def frozen(vmi):
        return vmi["status"].get("fsFreezeStatus") == "frozen"

    result.step("freeze", vm.put, "freeze", {"unfreezeTimeout": "0s"})
    result.step("frozen", vm.wait, "frozen", frozen, 20)
    time.sleep(2)
    mark = vm.recorder.mark()
    result.step("kill", deaths.kill, signal.SIGSEGV, measured=True)
    time.sleep(5)
    result.step("still frozen", lambda: all(frozen(vmi) for _, _, vmi in vm.recorder.versions[mark:]))
    result.step("unfreeze", vm.put, "unfreeze")
    result.step("thawed", vm.wait, "thawed", lambda vmi: not frozen(vmi), 20)
    result.step("freeze for 10 s", vm.put, "freeze", {"unfreezeTimeout": "10s"})
    result.step("frozen again", vm.wait, "frozen", frozen, 20)
    time.sleep(2)
    result.step("kill", deaths.kill, signal.SIGKILL, measured=True)
    result.step("still frozen", lambda: frozen(vm.latest))
    result.step("thawed by itself", vm.wait, "thawed", lambda vmi: not frozen(vmi), 30)
    result.step("guest writes", lambda: "written" in vm.shell("echo x >/data/x && sync && echo wr''itten"))
    goes_on(result, vm, deaths, guest)
    return vm


@death(
    "SIGABRT to the launcher in a backup that is pulled, and SIGKILL in one that is pushed",
    RUNS_ON + "; both backups complete",
)
def launcher_dies_in_backup(session, result):
    vm, deaths, guest = running(
        session, result, "dies-in-backup", change=backup.tracked, state=("cbt",)
    )
    result.step("changedBlockTracking Enabled", backup.tracking_enabled, vm)
    pod = AttachmentPod(session.image, backup.VOLUME, session.folder + "/attachment-pod.log", size=0)
    result.step("attach the target", backup.attach_target, vm, pod)
    result.step("start", backup.start, vm, "pull", "Pull")
    time.sleep(2)
    result.step("kill", deaths.kill, signal.SIGABRT, measured=True)
    time.sleep(3)
    result.step("the backup runs on", lambda: not backup_status(vm).get("completed"))
    result.step("abort", lambda: backup.put(vm, "pull", "Abort", None, backup.started(vm)))
    result.step("pulled: completed", backup.completed, vm, "pull")
    result.step(
        "pushed", deaths.at, "VMI backup job initiated", signal.SIGKILL, lambda: backup.backup(vm, "push")
    )
    result.step("it died in the backup", deaths.came_before, "Backup has been completed")
    result.step("image of the backup", backup.image, pod, "push")
    backup.finish(vm)
    result.step("detach the target", detach, vm, backup.VOLUME, pod)
    goes_on(result, vm, deaths, guest, (*HOTPLUG_EVENTS, "HotplugFailed", LOST_CALL))
    return vm


def backup_status(vm):
    return vm.status["changedBlockTracking"].get("backupStatus", {})


@death(
    "SIGSEGV to the launcher in a memory dump",
    RUNS_ON + "; the dump is made again, and so is the next one",
)
def launcher_dies_in_memory_dump(session, result):
    vm, deaths, guest = running(session, result, "dies-in-dump")
    log = session.folder + "/attachment-pod.log"
    pod = AttachmentPod(session.image, "dump", log, size=0)
    dump = lambda: volumes.dump(vm, pod)  # noqa: E731
    result.step("dump", deaths.at, "Starting memory dump", signal.SIGSEGV, dump)
    result.step("it died in the dump", deaths.came_before, "Completed memory dump")
    result.step("file", volumes.dump_file, vm, pod)
    result.step("detach", detach, vm, "dump", pod)
    result.step("guest answers", vm.shell, "echo hello")
    time.sleep(1)  # a dump of the same second is taken for the same one
    pod = AttachmentPod(session.image, "dump", log, size=0)
    result.step("dump again", volumes.dump, vm, pod)
    result.step("file", volumes.dump_file, vm, pod)
    result.step("detach it", detach, vm, "dump", pod)
    # A sync meets a guest that stands still for its dump, without a death too.
    goes_on(result, vm, deaths, guest, (*HOTPLUG_EVENTS, "HotplugFailed", "SyncFailed", LOST_CALL))
    return vm


@death(
    "SIGKILL to the launcher in the grace period of 20 s; the guest ignores the power button and has no agent",
    "killed at the end of the grace period: Failed",
)
def launcher_dies_in_grace_period(session, result):
    vm, deaths, _ = running(session, result, "dies-in-grace", grace=GRACE)
    result.step(
        "guest ignores the button, no agent",
        vm.shell,
        "touch /run/ignore-power /run/no-agent; killall qemu-ga; sleep 1",
    )
    vm.lacks_condition("AgentConnected", 20)
    start = time.time()
    vm.delete()
    until("the event ShuttingDown", lambda: counted(vm)["ShuttingDown"], 20)
    time.sleep(GRACE / 4)
    result.step("kill", deaths.kill, signal.SIGKILL, measured=True)
    result.step("final phase", vm.final_phase)
    result.step("at the end of the grace period", in_time, time.time() - start, GRACE)
    result.step("gone", vm.gone)
    deaths.check_end(result, "Failed", SHUTDOWN_EVENTS)
    return vm


def in_time(seconds, expected):
    """Neither before it nor much later: the grace period has not begun again."""
    if not expected - 1 <= seconds < expected + GRACE / 4:
        raise RuntimeError(f"after {seconds:.1f} s")
    return True


@death(
    "SIGSEGV to the launcher once it has asked the guest to shut down, which ignores that; then the guest obeys",
    "the next one asks again: Succeeded",
)
def launcher_dies_in_shutdown(session, result):
    vm, deaths, _ = running(session, result, "dies-in-shutdown", grace=60)
    vm.shell("touch /run/ignore-power /run/no-agent; killall qemu-ga; sleep 1")
    vm.lacks_condition("AgentConnected", 20)
    vm.delete()
    until("the event ShuttingDown", lambda: counted(vm)["ShuttingDown"], 20)
    result.step("the guest has ignored it", vm.console().expect, "power button ignored", 20)
    result.step("kill", deaths.kill, signal.SIGSEGV, measured=True)
    vm.console().send("rm /run/ignore-power\n")
    result.step("gone", vm.gone)
    deaths.check_end(result, "Succeeded", SHUTDOWN_EVENTS)
    return vm


@death(
    "SIGABRT to the launcher while virt-handler is away; then SIGKILL, and the guest powers off meanwhile",
    "pause and unpause work again; Succeeded at the end",
)
def launcher_dies_without_virt_handler(session, result):
    vm, deaths, guest = running(session, result, "dies-unseen")
    result.step("virt-handler SIGKILL", session.handler.stop, signal.SIGKILL)
    result.step("kill", deaths.kill, signal.SIGABRT, measured=True)
    time.sleep(3)
    result.step("virt-handler is back", lambda: bool(session.handler.start()))
    time.sleep(4)
    deaths.check(result)
    vm.socket = None  # of the console; it has ended with virt-handler
    result.step("the guest ran on", same_guest, vm, guest)
    works(result, vm, "afterwards")
    result.step("virt-handler SIGKILL", session.handler.stop, signal.SIGKILL)
    result.step("guest: power off", power_off_by_socket, vm)
    until("QEMU's end", lambda: not vm.pod.guests(), 20)
    result.step("kill", deaths.kill, signal.SIGKILL, measured=True)
    result.step("virt-handler is back", lambda: bool(session.handler.start()))
    result.step("final phase", vm.final_phase)
    end_after_final_phase(result, vm)
    deaths.check_end(result, "Succeeded", (*SHUTDOWN_EVENTS, "Paused", "Unpaused"))
    return vm
