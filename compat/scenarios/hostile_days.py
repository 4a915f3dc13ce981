"""Days on which what is around a launcher hangs, is full, or is somebody else's."""

import contextlib
import fcntl
import os
import shutil
import signal
import threading
import time

from kit import mounts
from kit.attachment_pod import AttachmentPod
from kit.kube import phase
from kit.registry import scenario
from kit.steps import boot, end_after_final_phase, end_by_deletion, works
from kit.volume_hotplug import find, specify
from kit.wait import until

DAEMON = "virtqemud"
# Without a stopped daemon's answer, a launcher needs its keepalive's time to notice.
REPLACEMENT_TIMEOUT = 90  # seconds
# In an image: QEMU holds this byte while nobody else may write (RAW_LOCK_SHARED_BASE and
# BLK_PERM_WRITE).
QEMU_WRITE_LOCK = 201
PAGE = os.sysconf("SC_PAGE_SIZE")


# ---- volumes -------------------------------------------------------------------------------------


@scenario(
    "six volumes are plugged in at once, and another program has locked the image of the third; then it lets go",
    "the five others are Ready meanwhile, and Synchronized names the third; all are Ready afterwards",
)
def six_volumes_one_locked(session, result):
    vm = session.vm("six-volumes")
    boot(result, vm)
    pods = [
        AttachmentPod(session.image, f"six-{n}", session.folder + "/attachment-pod.log") for n in range(1, 7)
    ]
    third, names = pods[2], [pod.volume for pod in pods]
    with locked(third.claim_folder + "/disk.img"):
        plug(vm, pods)
        others = [name for name in names if name != third.volume]
        result.step("the others are Ready", lambda: ready(vm, others) > 0)
        result.step("the third is", lambda: vm.volume(third.volume)["phase"])
        result.step("Synchronized names it", says_why, vm, third.volume)
        result.step("guest: serials", serials, vm)
    result.step("all are Ready", lambda: ready(vm, names, 90) > 0)
    result.step("guest: serials", serials, vm)
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    for pod in pods:
        pod.remove()
    return vm


@contextlib.contextmanager
def locked(image):
    """As another QEMU has it that writes to the image."""
    with open(image, "rb") as f:
        fcntl.lockf(f, fcntl.LOCK_SH, 1, QEMU_WRITE_LOCK)
        yield


def plug(vm, pods):
    def change(vmi):
        for pod in pods:
            claim = {"persistentVolumeClaim": {"claimName": pod.volume, "hotpluggable": True}}
            specify(vmi, pod.volume, pod, claim, {"serial": pod.volume, "disk": {"bus": "scsi"}})

    vm.edit(change)


def ready(vm, names, timeout=40):
    def all_ready(vmi):
        found = {volume["name"]: volume.get("phase") for volume in vmi["status"]["volumeStatus"]}
        return all(found.get(name) == "Ready" for name in names)

    return vm.wait(f"{', '.join(names)} Ready", all_ready, timeout)


def serials(vm):
    """In order, because which is mounted first is chance."""
    return vm.shell("disks | cut -d' ' -f3 | sort").split()


def says_why(vm, volume):
    def named(vmi):
        conditions = vmi["status"].get("conditions", [])
        return any(c["type"] == "Synchronized" and volume in c.get("message", "") for c in conditions)

    return vm.wait(f"Synchronized with {volume}", named, 20) > 0


# ---- the log -------------------------------------------------------------------------------------


@scenario(
    "the launcher's log is on a file system that is full, has space again, and is full at the end",
    "pause and unpause work; the log goes on once there is space; Succeeded; the pod ends with 0",
)
def log_on_a_full_file_system(session, result):
    folder = "/run/small"
    os.makedirs(folder)
    mounts.mount_tmpfs(folder, "size=2m,mode=755")
    log = folder + "/log"
    vm = session.vm("full-log", log=log)
    boot(result, vm)
    time.sleep(3)
    size = result.step("full", fill, log, measured=True)
    works(result, vm, "full")
    result.step("nothing was written", lambda: os.path.getsize(log) == size)
    os.unlink(log + ".rest")
    works(result, vm, "with space")
    result.step("the log goes on", lambda: os.path.getsize(log) > size)
    result.step("full again", fill, log, measured=True)
    result.step("guest answers", vm.shell, "echo hello")
    end_by_deletion(result, vm)
    shutil.copyfile(log, vm.log)
    mounts.unmount(folder)
    return vm


def fill(log):
    """Takes all space, and what is left of the log's last page; returns the log's size."""
    for path in (log + ".rest", log):
        with open(path, "ab", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(b"\n" * PAGE):
                pass
    if os.statvfs(log).f_bavail:
        raise RuntimeError(f"{log} has space")
    return os.path.getsize(log)


@scenario(
    "the launcher's log is a pipe that nobody reads any more, until the pod has ended",
    "pause and unpause work; Succeeded; the pod ends with 0",
)
def unread_log(session, result):
    with LogPipe("/run/unread-log", session.folder + "/launcher-unread-log.log") as pipe:
        vm = session.vm("unread-log", log=pipe.path)
        boot(result, vm)
        result.step("nobody reads, and the pipe is full", pipe.clog)
        works(result, vm, "meanwhile")
        result.step("guest answers", vm.shell, "echo hello")
        result.step("the pipe is full", pipe.is_full)
        vm.delete()
        container = vm.pod.container
        result.step("no process left", until, "the end", lambda: not container.first_process(), 90)
        pipe.read()  # what is around the container may have to say something, too
        result.step("gone", vm.gone)
        return vm


class LogPipe(threading.Thread):
    """A named pipe, and who reads it into a file, as a container runtime does."""

    def __init__(self, path, file):
        super().__init__(daemon=True)
        self.path, self.file, self.clogged = path, file, threading.Event()
        os.mkfifo(path)
        self.pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, PAGE)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.clogged.set()
        self.join()
        os.close(self.pipe)
        os.unlink(self.path)

    def run(self):
        while not self.clogged.wait(0.02):
            self.read()

    def read(self):
        with open(self.file, "ab") as f, contextlib.suppress(BlockingIOError):
            while True:
                f.write(os.read(self.pipe, PAGE))

    def clog(self):
        """Nobody reads any more, and it is full."""
        self.clogged.set()
        self.join()
        return self.is_full()

    def is_full(self):
        try:
            while os.write(self.pipe, b"\n"):
                pass
        except BlockingIOError:
            return True


# ---- virtqemud and virt-handler ------------------------------------------------------------------


def hanging_sync(session, result, vm, pod):
    """virtqemud is stopped, and a sync waits for it."""
    result.step("virtqemud is stopped", vm.pod.signal_processes, DAEMON, signal.SIGSTOP)
    plug(vm, [pod])
    # virt-handler writes it once the sync has taken too long, and tries again.
    result.step("a volume is mounted, and its sync hangs", mounted, vm, pod.volume)
    time.sleep(2)


def mounted(vm, volume):
    return vm.wait("MountedToPod", lambda vmi: find(vmi, volume).get("phase") == "MountedToPod", 30) > 0


@scenario(
    "virtqemud is stopped, a sync waits for it, and the VMI is deleted; 10 s later virtqemud goes on",
    "Succeeded; the pod ends with 0",
)
def daemon_stopped_in_sync(session, result):
    vm = session.vm("stopped-in-sync")
    boot(result, vm)
    pod = AttachmentPod(session.image, "hp-late", session.folder + "/attachment-pod.log")
    hanging_sync(session, result, vm, pod)
    vm.delete()
    time.sleep(10)
    result.step("the volume is", lambda: vm.volume("hp-late")["phase"])
    result.step("virtqemud goes on", vm.pod.signal_processes, DAEMON, signal.SIGCONT)
    result.step("gone", vm.gone)
    pod.remove()
    return vm


@scenario(
    "virtqemud is stopped for good under a running guest",
    "another virtqemud; pause and unpause work again; the guest runs on; Succeeded",
)
def daemon_stopped_for_good(session, result):
    vm = session.vm("stopped-for-good")
    boot(result, vm)
    qemu, stopped = vm.pod.guests(), vm.pod.pids(DAEMON)
    result.step("virtqemud is stopped", vm.pod.signal_processes, DAEMON, signal.SIGSTOP)
    result.step("another virtqemud", another, vm.pod, stopped)
    time.sleep(5)
    works(result, vm, "afterwards")
    result.step("guest answers", vm.shell, "echo hello")
    result.step("the same QEMU", lambda: vm.pod.guests() == qemu)
    end_by_deletion(result, vm)
    return vm


def another(pod, before):
    return bool(until(f"another {DAEMON}", lambda: set(pod.pids(DAEMON)) - set(before), REPLACEMENT_TIMEOUT))


@scenario(
    "virtqemud is stopped for good while it starts the guest's QEMU",
    "another virtqemud; Running, and the guest is up; Succeeded",
)
def daemon_stopped_in_start(session, result):
    vm = session.vm("stopped-in-start")
    until("the guest's QEMU", vm.pod.guests, 60, interval=0.01)
    stopped = vm.pod.pids(DAEMON)
    result.step("virtqemud is stopped", vm.pod.signal_processes, DAEMON, signal.SIGSTOP)
    time.sleep(5)
    result.step("phase meanwhile", lambda: phase(vm.latest))
    result.step("another virtqemud", another, vm.pod, stopped)
    result.step("phase Running", lambda: vm.running(90) > 0)
    result.step("guest up on the console", vm.guest_up)
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    return vm


@scenario(
    "SIGKILL to virt-handler while a sync waits for a stopped virtqemud, which goes on with the next virt-handler",
    "the volume is Ready; the guest has it; pause and unpause work",
)
def handler_killed_in_sync(session, result):
    vm = session.vm("handler-killed-in-sync")
    boot(result, vm)
    pod = AttachmentPod(session.image, "hp-late", session.folder + "/attachment-pod.log")
    hanging_sync(session, result, vm, pod)
    result.step("virt-handler SIGKILL", session.handler.stop, signal.SIGKILL)
    result.step("virt-handler is back", lambda: bool(session.handler.start()))
    time.sleep(3)
    result.step("the volume is", lambda: vm.volume("hp-late")["phase"])
    result.step("virtqemud goes on", vm.pod.signal_processes, DAEMON, signal.SIGCONT)
    result.step("the volume is Ready", lambda: ready(vm, ["hp-late"], 60) > 0)
    result.step("guest: disks", vm.shell, "disks")
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    pod.remove()
    return vm


@scenario("`virsh destroy` in the pod", "Failed; the pod ends with 0")
def virsh_destroy(session, result):
    vm = session.vm("virsh-destroy")
    boot(result, vm)
    result.step("destroy", lambda: vm.pod.virsh("destroy")["exit"])
    result.step("final phase", vm.final_phase)
    end_after_final_phase(result, vm)
    return vm


# ---- the guest -----------------------------------------------------------------------------------

RESTARTS = (
    "(while [ ! -e /run/enough ]; do killall qemu-ga && echo >>/run/ends; sleep 2; done >/dev/null 2>&1 &)"
)


@scenario(
    "the guest's agent ends every 2 s for half a minute, and is started again each time",
    "pause and unpause work meanwhile; then AgentConnected, and the agent's answers",
)
def agent_restarts(session, result):
    vm = session.vm("agent-restarts")
    boot(result, vm)
    vm.shell(RESTARTS)
    time.sleep(15)
    works(result, vm, "meanwhile")
    time.sleep(15)
    ends = int(vm.shell("touch /run/enough; wc -l </run/ends"))
    result.step("the agent has ended", lambda: ends, measured=True)
    result.step("it has more than 5 times", lambda: ends > 5)
    time.sleep(3)
    result.step("AgentConnected", lambda: vm.has_condition("AgentConnected", 60) > 0)
    result.step("REST guestosinfo", lambda: vm.get("guestosinfo")[1]["hostname"])
    end_by_deletion(result, vm)
    return vm
