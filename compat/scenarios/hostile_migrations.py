"""Live migrations on days on which users or libvirt's daemons interfere."""

import signal
import time

from kit.migration import TARGET_LABEL
from kit.migration_session import MigratingVM
from kit.registry import TWO_NODES, scenario
from kit.steps import end_by_deletion
from kit.wait import until
from scenarios.hostile_days import DAEMON
from scenarios.migration import TickReader, boot, place, record_ended
from scenarios.migration_failures import SLOW, succeeds_again


@scenario(
    "three migrations are cancelled 0.5 s after they have begun; the fourth may end",
    "each is Failed, its target's pod ends, and the guest goes on at the source; then Succeeded",
    place=TWO_NODES,
)
def cancelled_three_times(session, result):
    vm = MigratingVM(session, "cancelled-thrice")
    boot(result, vm)
    reader = TickReader(vm)
    for attempt in ("first", "second", "third"):
        cancelled(session, result, vm, attempt)
    result.step("the guest goes on at the source", reader.goes_on)
    succeeds_again(session, result, vm, reader)
    end_by_deletion(result, vm)
    return vm


def cancelled(session, result, vm, attempt):
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step(f"{attempt}: migration runs", migration.runs)
    time.sleep(0.5)
    migration.cancel()
    result.step(f"{attempt}: migration has ended", migration.ended, 60)
    result.step(f"{attempt}: the VMI is at", place, vm)
    result.step(f"{attempt}: target pod ended", record_ended, migration.record)
    result.step(f"{attempt}: target label is gone", no_target_label, vm)


def no_target_label(vm):
    return vm.wait("label", lambda vmi: TARGET_LABEL not in vmi["metadata"]["labels"], 20) > 0


@scenario(
    "the virtqemud of both pods are stopped for good in a migration, and the VMI is deleted",
    "both pods end; the VMI is gone",
    place=TWO_NODES,
)
def daemons_stopped_in_migration(session, result):
    vm = MigratingVM(session, "daemons-stopped", grace=10)
    boot(result, vm)
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step("migration runs", migration.runs)
    until("the target's QEMU", migration.pod.guests, 20)
    time.sleep(3)
    for name, pod in (("source", vm.pod), ("target", migration.pod)):
        result.step(f"{name}: virtqemud is stopped", pod.signal_processes, DAEMON, signal.SIGSTOP)
    vm.delete()
    for name, record in (("source", vm.record), ("target", migration.record)):
        result.step(f"{name} pod ended", lambda record=record: record_ended(record, 90) is not None)
    result.step("gone", lambda: bool(vm.gone(90)))
    return vm
