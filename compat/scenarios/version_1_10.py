"""What only virt-handler of KubeVirt v1.10 asks for."""

import contextlib
import time

from kit import kube, rest
from kit.migration_session import MigratingVM
from kit.normalize import plain
from kit.objects import KUBEVIRT_CR
from kit.registry import TWO_NODES, scenario
from kit.steps import end_by_deletion
from kit.wait import until
from scenarios.migration import TickReader, boot, guest_went_on, one_connection, place, record_ended

# The guest writes 24 MiB of its memory over and over, in less time than they take at this bandwidth.
BANDWIDTH = "8Mi"
WRITER = "dd if=/dev/urandom of=/run/a bs=1M count=24; (while :; do cat /run/a >/run/b; done) & echo wr''ites"
# The options that v1.9 sends as numbers are quantities, and the margin is percent.
STALL_DETECTOR = {
    "stallMargin": 4,
    "ewmaAlpha": "400m",
    "stallProgressTimeout": 5,
    "switchoverTimeout": 60,
    "precopyPossibleFactor": "1500m",
    "patienceWindowDecayFactor": "500m",
    "searchLocalMinima": False,
    "completionTimeoutFactor": "2",
}
# What the guest writes takes 3 s: more than the first step's downtime, and less than the second's.
DOWNTIME_TUNING = {"initialMs": 10, "steps": 2, "startAfterIteration": 2, "cooldownSeconds": 2}
MAX_DOWNTIME = 5_000  # ms


@contextlib.contextmanager
def feature_gate(name):
    """The KubeVirt CR has it meanwhile."""

    change_gates(lambda gates: gates.append(name))
    try:
        yield
    finally:
        change_gates(lambda gates: gates.remove(name))


def change_gates(change):
    def edit(cr):
        change(cr["spec"]["configuration"]["developerConfiguration"]["featureGates"])

    kube.edit(KUBEVIRT_CR, edit)
    time.sleep(2)  # virt-handler reads it


def busy(session, result, name):
    vm = MigratingVM(session, name, change=one_connection)
    boot(result, vm)
    result.step("guest writes to its memory", lambda: "writes" in vm.shell(WRITER, 60))
    return vm


@scenario(
    "a guest writes faster than its migration; the stall detector's options are quantities",
    "aborted long before its time is over, as the rest would stop the guest for too long; the guest goes on",
    place=TWO_NODES,
    since="v1.10",
)
def stalled(session, result):
    vm = busy(session, result, "stalled")
    reader = TickReader(vm)
    with feature_gate("MigrationStallDetection"):
        migration = result.migrate(
            vm,
            session.nodes[1],
            completionTimeoutPerGiB=800,
            bandwidthPerMigration=BANDWIDTH,
            experimental={"stallDetector": STALL_DETECTOR},
        )
        result.step("migration has ended", migration.ended, 120)
    result.step("the VMI is at", place, vm)
    result.step("reason", lambda: plain(vm.migration_state().get("failureReason")))
    result.step("target pod ended", record_ended, migration.record)
    result.step("the guest goes on at the source", reader.goes_on)
    reader.stopped = True
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a guest writes faster than its migration, whose allowed downtime is raised in steps (downtimeTuning)",
    "the allowed downtime is 10 ms at first, and more afterwards; mode PreCopy; Succeeded; the guest goes on",
    place=TWO_NODES,
    since="v1.10",
)
def raised_downtime(session, result):
    vm = busy(session, result, "raised-downtime")
    source, reader = vm.record, TickReader(vm)
    with feature_gate("MigrationDowntimeTuning"):
        migration = result.migrate(
            vm,
            session.nodes[1],
            maxDowntimeMs=MAX_DOWNTIME,
            bandwidthPerMigration=BANDWIDTH,
            experimental={"downtimeTuning": DOWNTIME_TUNING},
        )
        result.step("migration runs", migration.runs)
        time.sleep(2)
        allowed = source.pod.allowed_downtime
        result.step("allowed downtime in ms", allowed)
        result.step("it is raised", lambda: bool(until("more", lambda: allowed() > 10, 120, 0.5)))
        result.step("migration has ended", migration.ended, 180)
    result.step("the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step("source pod ended", record_ended, source)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a picture of a VM that has no graphics device is asked for",
    "500, and the reason",
    since="v1.10",
)
def refused_picture(session, result):
    vm = session.vm(
        "refused-picture",
        change=lambda vmi: vmi["spec"]["domain"]["devices"].update(autoattachGraphicsDevice=False),
    )
    result.step("phase Running", vm.running, required=True)
    result.step("guest up on the console", vm.guest_up)
    path = rest.vmi_path(vm.namespace, vm.name, "vnc/screenshot")
    code, text = rest.request("GET", path, address=vm.address)
    result.step("answer's status code", lambda: code)
    result.step("answer's text", lambda: plain(text.decode(errors="replace")))
    end_by_deletion(result, vm)
    return vm
