"""Many launchers die in chance moments while disks come and go. Only by name."""

import hashlib
import os
import random
import signal
import threading
import time

from kit import objects
from kit.attachment_pod import AttachmentPod
from kit.image import USER
from kit.launcher_deaths import LOST_CALL, Deaths
from kit.steps import boot
from kit.volume_hotplug import detach
from kit.wait import until
from scenarios.launcher_deaths import HOTPLUG_EVENTS, death, identity, same_guest
from scenarios.volumes import attach_disk

SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
MOMENTS = 1.0  # seconds; what is killed lasts half of it where the machine is quiet
DISK_BYTES = 4 << 20
BLOCK_BYTES = 64 << 10
BLOCKS = 4  # that the guest writes each time
# Each launcher may die twice a minute, and a round takes 2 s on a quiet machine.
VMS = 12
EVENTS = (*HOTPLUG_EVENTS, LOST_CALL, "Paused", "Unpaused")


def small_disk(vmi):
    """The claims of all of them are in the node's memory."""
    vmi["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"] = objects.claim_status("root", "64Mi")


class Victim:
    """A VM with a disk that comes and goes, and keeps its content."""

    def __init__(self, session, index):
        self.session, self.volume, self.pod = session, "data", None
        self.vm = session.vm(f"tortured{index}", change=small_disk)
        self.claim = f"/run/tortured/{index}"
        os.makedirs(self.claim)
        os.chown(self.claim, 0, USER)
        os.chmod(self.claim, 0o2777)
        self.content = hashlib.sha256(bytes(DISK_BYTES)).hexdigest()

    def boot(self, result):
        boot(result, self.vm)
        self.vm.shell("true")
        time.sleep(2)
        self.deaths, self.guest = Deaths(self.vm), identity(self.vm)

    def round(self, chance):
        """The disk comes or goes, the launcher dies, and nothing is lost."""
        self.deaths.rest(self.vm.pod)
        number, seconds = chance.choice(SIGNALS), chance.uniform(0, MOMENTS)
        strike = threading.Timer(seconds, self.deaths.die, (number,))
        plugs = self.pod is None
        print(f"    {self.vm.name}: {number.name} {seconds:.3f} s into {'attach' if plugs else 'detach'}", flush=True)
        if plugs:
            self.pod = AttachmentPod(
                self.session.image,
                self.volume,
                self.session.folder + "/attachment-pod.log",
                size=DISK_BYTES,
                shared=self.claim,
            )
        strike.start()
        try:
            if plugs:
                attach_disk(self.vm, self.pod)
            else:
                detach(self.vm, self.volume, self.pod)
                self.pod = None
        finally:
            strike.join()
        self.deaths.back()
        if plugs:
            self.write(chance.randrange(DISK_BYTES // BLOCK_BYTES - BLOCKS))
        self.has_content()
        self.still_hears()
        same_guest(self.vm, self.guest)
        return True

    def write(self, block):
        """The guest reads what it wrote before, and writes to another place."""
        serial = f"SerIal-{self.volume}"
        until("the disk in the guest", lambda: serial in self.vm.shell("disks"), 20)
        text = self.vm.shell(
            f"D=/dev/$(disks | awk '$3 == \"{serial}\" {{print $1}}'); sha256sum <$D; "
            f"dd if=/dev/urandom of=$D bs={BLOCK_BYTES} count={BLOCKS} seek={block} conv=fsync 2>/dev/null; "
            "echo 3 >/proc/sys/vm/drop_caches; sha256sum <$D",
            60,
        )
        before, after = (line.split()[0] for line in text.splitlines())
        if before != self.content or after == before:
            raise RuntimeError(f"the guest reads {before}, writes {after}; the disk had {self.content}")
        self.content = after

    def has_content(self):
        with open(self.claim + "/disk.img", "rb") as f:
            found = hashlib.file_digest(f, "sha256").hexdigest()
        if found != self.content:
            raise RuntimeError(f"the disk has {found}, and not {self.content}")

    def end(self, result):
        """client-go drops events about an object beyond 25 in a row, so they are not counted."""
        result.step("seen: Running only", self.deaths.phases, "Running")
        result.step("seen: no other condition", self.deaths.new_conditions, ("Paused",))
        result.step("seen: every condition of before", self.deaths.lost_conditions, ())
        result.step("seen: no other event", self.deaths.known_events, EVENTS)
        self.deaths.end(result)
        if self.pod:
            self.pod.remove()
        result.step("the disk has what the guest wrote", self.has_content)

    def still_hears(self):
        """The next launcher does what it is asked, and virt-handler hears of it."""
        for action, wait in (("pause", self.vm.has_condition), ("unpause", self.vm.lacks_condition)):
            answer = self.vm.put(action)
            if not answer.startswith("202"):
                raise RuntimeError(f"{action}: {answer}")
            wait("Paused")


@death(
    "launchers die in chance moments while disks come and go, in turns of 12 VMs (KILLS=500, VMS, SEED)",
    "the same guests run on, and no byte of a disk is lost; virt-handler sees Running only",
    default=False,
)
def launcher_torture(session, result):
    kills, count = int(os.environ.get("KILLS", "500")), int(os.environ.get("VMS", VMS))
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"  SEED={seed}", flush=True)
    victims = [Victim(session, index) for index in range(count)]
    for victim in victims:
        victim.boot(result)
    chance = random.Random(seed)
    for index in range(kills):
        victim = victims[index % count]
        result.step(f"kill {index + 1}", victim.round, chance, required=True, measured=True)
    for victim in victims:
        victim.end(result)
    return victims[0].vm
