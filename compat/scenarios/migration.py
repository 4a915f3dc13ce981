"""Live migrations that succeed."""

import re
import threading
import time

from kit import objects
from kit.kube import condition, phase
from kit.migration import TARGET_LABEL
from kit.migration_session import MigratingVM
from kit.normalize import plain, status, without_times
from kit.registry import TWO_NODES, scenario
from kit.steps import end_by_deletion
from kit.wait import until

# A variable in the guest's shell, and a counter on its console: both have to go on at the target.
TICKER = "MARK=kept; (i=0; while :; do i=$((i+1)); echo tick-$i.; usleep 100000; done) &"
TICK = re.compile(rb"tick-(\d+)\.")


def boot(result, vm, timeout=60):
    result.step("phase Running", vm.running, required=True)
    result.step("guest up on the console", vm.guest_up, timeout)
    result.step("AgentConnected", vm.agent_connected, timeout)
    result.step(
        "LiveMigratable",
        lambda: vm.has_condition("LiveMigratable", 20, 0) and without_times(vm.condition("LiveMigratable")),
    )
    result.step("migrationMethod", lambda: vm.status.get("migrationMethod"))
    result.step("ticker on the console", start_ticker, vm)


def start_ticker(vm):
    vm.shell("true")
    vm.console().send(TICKER + "\n")
    return vm.console().expect("tick-20.", 15)


class TickReader(threading.Thread):
    """Reads the console in the background, and the time of each tick."""

    def __init__(self, vm):
        super().__init__(daemon=True)
        self.console, self.ticks, self.stopped = vm.console(), [], False
        self.start()

    def run(self):
        seen = 0
        while not self.stopped:
            more, text = self.console.receive(0.2), self.console.text
            self.ticks += [(time.time(), int(number)) for number in TICK.findall(text[seen:])]
            seen = max(seen, text.rfind(b"\n") + 1)
            if not more:
                return

    def last(self):
        return self.ticks[-1][1] if self.ticks else None

    def goes_on(self):
        before = self.last()
        time.sleep(2)
        return self.last() > before


def guest_went_on(vm, result, reader, node):
    """On the new node: the same ticker, the same shell."""
    reader.stopped = True
    reader.join(2)
    last_time, last = reader.ticks[-1]
    vm.follow(node)

    def ticks():
        console = vm.console()
        until("a tick", lambda: console.receive(0.2) and TICK.search(console.text), 15, 0)
        first, first_time = int(TICK.search(console.text).group(1)), time.time()
        until("more ticks", lambda: console.receive(0.2) and len(TICK.findall(console.text)) > 10, 15, 0)
        print(f"    last tick on the source {last}, first on the target {first}", flush=True)
        return {"went on": first >= last, "seconds between": round(first_time - last_time, 2)}

    result.step("ticker goes on", ticks)
    result.step("the shell has kept its variable", lambda: "M=kept" in vm.shell("echo M=$MARK"))
    result.step(
        "uptime", lambda: float(re.search(r"U=([\d.]+)", vm.shell("sed 's/^/U=/' /proc/uptime")).group(1))
    )


def place(vm):
    state = vm.migration_state()
    labels = vm.latest["metadata"]["labels"]
    return {
        "nodeName": vm.status["nodeName"],
        "label": labels["kubevirt.io/nodeName"],
        "target label": labels.get(TARGET_LABEL),
        "phase": phase(vm.latest),
        "completed": state.get("completed"),
        "failed": state.get("failed"),
        "mode": state.get("mode"),
    }


def record_ended(record, timeout=40):
    until("the pod's end", lambda: record.ended, timeout)
    return record.exit_code


def migrate(session, result, vm):
    """To the second node, where the guest goes on; the source's pod ends. Returns the migration."""
    source, reader = vm.record, TickReader(vm)
    migration = result.migrate(vm, session.nodes[1])
    result.step("migration has ended", migration.ended)
    result.step("the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step("source pod ended", record_ended, source)
    vm.pod, vm.record = migration.pod, migration.record
    return migration


def status_at_the_target(result, vm):
    result.step("AgentConnected on the target", vm.has_condition, "AgentConnected", 40)
    result.record("running_status", status(vm.latest))


@scenario(
    "a running guest goes to the other node, its disk is shared; then back",
    "Succeeded both times; the guest goes on; pause and unpause work on the target; the source's pod ends with 0",
    place=TWO_NODES,
)
def precopy(session, result):
    vm = MigratingVM(session, "precopy")
    boot(result, vm)
    source, reader = vm.record, TickReader(vm)
    migration = result.migrate(vm, session.nodes[1])
    result.step(
        "target is ready",
        migration.wait,
        "targetNodeAddress",
        lambda state: state.get("targetNodeAddress"),
        40,
    )
    result.step("migration has ended", migration.ended)
    result.step("the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step("source pod ended", record_ended, source)
    result.step(
        "activePods is the target",
        vm.wait,
        "activePods",
        lambda vmi: list(vmi["status"]["activePods"].values()) == ["node02"],
        20,
        0,
    )
    result.step(
        "target label is gone",
        vm.wait,
        "label",
        lambda vmi: TARGET_LABEL not in vmi["metadata"]["labels"],
        20,
    )
    result.step("AgentConnected on the target", vm.has_condition, "AgentConnected", 30)
    vm.pod, vm.record = migration.pod, migration.record
    result.step("pause", vm.put, "pause")
    result.step("condition Paused", vm.has_condition, "Paused")
    result.step("unpause", vm.put, "unpause")
    result.step("not Paused", vm.lacks_condition, "Paused")
    result.step(
        "guest writes to its disk",
        lambda: vm.shell("mkdir -p /data; echo x >/data/x && sync && echo wr''itten", 20).count("written"),
    )
    result.record("running_status", status(vm.latest))
    reader = TickReader(vm)
    back = result.migrate(vm, session.nodes[0])
    result.step("back: migration has ended", back.ended)
    result.step("back: the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[0])
    result.step("back: source pod ended", record_ended, migration.record)
    vm.pod, vm.record = back.pod, back.record
    end_by_deletion(result, vm)
    return vm


@scenario(
    "local disks are copied: a container disk, cloud-init and an empty disk",
    "Succeeded; the guest reads at the target what it wrote at the source",
    place=TWO_NODES,
)
def block(session, result):
    def change(vmi):
        vmi["spec"]["volumes"][0] = {"name": "rootdisk", "containerDisk": {"image": "registry/guest:1"}}
        vmi["status"]["volumeStatus"][0] = {"name": "rootdisk", "target": ""}
        objects.add_disk(vmi, "seed", {"cloudInitNoCloud": {"userData": "#cloud-config\nhostname: x\n"}})
        objects.add_disk(vmi, "scratch", {"emptyDisk": {"capacity": "64Mi"}}, serial="scratch-01")

    vm = MigratingVM(session, "block", change=change, claim=False)
    boot(result, vm)
    result.step(
        "guest writes",
        lambda: (
            "ok-1"
            in vm.shell("echo hello | dd of=/dev/vdc bs=512 conv=sync,fsync 2>/dev/null && echo ok-$((3-2))")
        ),
    )
    result.step(
        "ISO sizes",
        vm.wait,
        "size",
        lambda vmi: all(v.get("size") for v in vmi["status"]["volumeStatus"] if v["name"] == "seed"),
        30,
        0,
    )
    source, reader = vm.record, TickReader(vm)
    migration = result.migrate(vm, session.nodes[1])
    result.step(
        "target is ready",
        migration.wait,
        "targetNodeAddress",
        lambda state: state.get("targetNodeAddress"),
        40,
    )
    result.step("migration has ended", migration.ended, 120)
    result.step("the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step(
        "guest reads what it wrote",
        lambda: (
            "hello" in vm.shell("echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vdc bs=512 count=1 2>/dev/null")
        ),
    )
    result.step("source pod ended", record_ended, source)
    end_by_deletion(result, vm)
    return vm


def one_connection(vmi):
    """With a CPU limit virt-handler does not ask for parallel connections. QEMU 10.0 refuses post-copy with them, and
    they exceed the bandwidth limit."""
    vmi["spec"]["domain"]["resources"]["limits"] = {"cpu": "2"}


def no_userfaultfd(_session):
    with open("/proc/misc") as f:
        return None if "userfaultfd" in f.read() else "this kernel has no /dev/userfaultfd"


@scenario(
    "over its time at once, post-copy allowed",
    "mode PostCopy; Succeeded; the guest goes on",
    place=TWO_NODES,
    lacks=no_userfaultfd,
)
def postcopy(session, result):
    vm = MigratingVM(session, "postcopy", change=one_connection, userfaultfd=True)
    boot(result, vm)
    source, reader = vm.record, TickReader(vm)
    migration = result.migrate(
        vm,
        session.nodes[1],
        allowPostCopy=True,
        allowWorkloadDisruption=True,
        completionTimeoutPerGiB=5,
        bandwidthPerMigration="2Mi",
    )
    result.step("migration has ended", migration.ended, 120)
    result.step("the VMI is at", place, vm)
    if migration.phase == "Succeeded":
        guest_went_on(vm, result, reader, session.nodes[1])
        result.step("source pod ended", record_ended, source)
    else:
        result.step("reason", lambda: plain(vm.migration_state().get("failureReason")))
    end_by_deletion(result, vm)
    return vm


@scenario(
    "over its time at once, workload disruption allowed, post-copy not",
    "mode Paused: the guest is paused for the rest; Succeeded; the guest goes on",
    place=TWO_NODES,
)
def paused_copy(session, result):
    vm = MigratingVM(session, "paused-copy", change=one_connection)
    boot(result, vm)
    source, reader = vm.record, TickReader(vm)
    # The time is for whole GB of memory.
    migration = result.migrate(
        vm,
        session.nodes[1],
        allowWorkloadDisruption=True,
        completionTimeoutPerGiB=13,
        bandwidthPerMigration="4Mi",
    )
    result.step(
        "guest is paused", migration.wait, "mode Paused", lambda state: state.get("mode") == "Paused", 60
    )
    result.step("migration has ended", migration.ended, 120)
    result.step("the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step("source pod ended", record_ended, source)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a guest that its user has paused",
    "Succeeded; still paused; unpause works on the target",
    place=TWO_NODES,
)
def paused_guest(session, result):
    vm = MigratingVM(session, "paused-guest")
    boot(result, vm)
    source = vm.record
    result.step("pause", vm.put, "pause")
    result.step("condition Paused", vm.has_condition, "Paused")
    migration = result.migrate(vm, session.nodes[1])
    result.step("migration has ended", migration.ended)
    result.step("the VMI is at", place, vm)
    time.sleep(3)
    result.step("still Paused", lambda: bool(condition(vm.latest, "Paused")))
    vm.follow(session.nodes[1])
    result.step("unpause", vm.put, "unpause")
    result.step("not Paused", vm.lacks_condition, "Paused")
    result.step("guest answers", lambda: "M=kept" in vm.shell("echo M=$MARK"))
    result.step("source pod ended", record_ended, source)
    end_by_deletion(result, vm)
    return vm
