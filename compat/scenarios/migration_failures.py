"""Live migrations that are cancelled, or lose one of their pods."""

import time

from kit.kube import phase
from kit.migration import TARGET_LABEL
from kit.migration_session import MigratingVM
from kit.normalize import plain
from kit.registry import TWO_NODES, scenario
from kit.steps import end_by_deletion
from kit.wait import until
from scenarios.migration import TickReader, boot, guest_went_on, place, record_ended

SLOW = "1Mi"  # bandwidth that leaves time to interfere
# libvirt notices a dead peer after 30 s (keepalive_interval 5, keepalive_count 5).
ORPHAN_TIMEOUT = 60  # seconds


def succeeds_again(session, result, vm, reader):
    source = vm.record
    again = result.migrate(vm, session.nodes[1])
    result.step("again: migration has ended", again.ended)
    result.step("again: the VMI is at", place, vm)
    guest_went_on(vm, result, reader, session.nodes[1])
    result.step("again: source pod ended", record_ended, source)


@scenario(
    "a slow migration is cancelled; the next one succeeds",
    "abortStatus Succeeded, the guest goes on at the source, the target's pod ends; then Succeeded",
    place=TWO_NODES,
)
def cancel(session, result):
    vm = MigratingVM(session, "cancel")
    boot(result, vm)
    reader = TickReader(vm)
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step("migration runs", migration.runs)
    time.sleep(3)
    start = time.time()
    migration.cancel()
    result.step(
        "abortRequested", migration.wait, "abortRequested", lambda state: state.get("abortRequested"), 10
    )
    result.step("migration has ended", migration.ended, 60)
    result.step("seconds to the end", lambda: round(time.time() - start, 1))
    result.step("the VMI is at", place, vm)
    result.step(
        "abort status and reason",
        lambda: [vm.migration_state().get("abortStatus"), plain(vm.migration_state().get("failureReason"))],
    )
    result.step("the guest goes on at the source", reader.goes_on)
    result.step("target pod ended", record_ended, migration.record)
    result.step(
        "target label is gone",
        vm.wait,
        "label",
        lambda vmi: TARGET_LABEL not in vmi["metadata"]["labels"],
        20,
    )
    time.sleep(3)
    succeeds_again(session, result, vm, reader)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "SIGKILL to the target's pod in the middle; the next migration succeeds",
    "Failed, the guest goes on at the source; then Succeeded",
    place=TWO_NODES,
)
def target_killed(session, result):
    vm = MigratingVM(session, "target-killed")
    boot(result, vm)
    reader = TickReader(vm)
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step("migration runs", migration.runs)
    time.sleep(3)
    migration.pod.kill()
    result.step("target pod ended", record_ended, migration.record)
    result.step("migration has ended", migration.ended, 60)
    result.step("the VMI is at", place, vm)
    time.sleep(6)
    result.step("reason", lambda: plain(vm.migration_state().get("failureReason")))
    result.step("the guest goes on at the source", reader.goes_on)
    succeeds_again(session, result, vm, reader)
    end_by_deletion(result, vm)
    return vm


def seconds_to_end(pod, pid, since):
    until(f"the end of process {pid}", lambda: not pod.lives(pid), ORPHAN_TIMEOUT)
    return round(time.time() - since, 1)


@scenario(
    "SIGKILL to the source's pod in the middle",
    "the target's QEMU, which holds half a guest, ends; virt-handler leaves such a VMI alone as long as it counts as "
    "migrating; it can be deleted",
    place=TWO_NODES,
)
def source_killed(session, result):
    vm = MigratingVM(session, "source-killed")
    boot(result, vm)
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step("migration runs", migration.runs)
    time.sleep(3)
    (qemu,) = until("the target's QEMU", migration.pod.guests, 10)
    killed = time.time()
    vm.pod.kill()
    result.step("source pod ended", record_ended, vm.record)
    result.step("seconds until the target's QEMU is gone", seconds_to_end, migration.pod, qemu, killed)

    def later():
        try:
            return vm.final_phase(40)
        except TimeoutError:
            return phase(vm.latest) + " after 40 s"

    result.step("phase", later)
    vm.delete()
    result.step("target pod ended", record_ended, migration.record, 60)
    result.step("gone", vm.gone)
    return vm
