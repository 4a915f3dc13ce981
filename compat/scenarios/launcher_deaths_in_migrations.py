"""SIGKILL, SIGSEGV or SIGABRT to a launcher that is started again, on either side of a live migration."""

import signal
import time

from kit.launcher_deaths import LOST_CALL, Deaths, Log
from kit.migration_session import MigratingVM
from kit.normalize import plain
from kit.registry import TWO_NODES
from kit.steps import works
from scenarios.launcher_deaths import death
from scenarios.migration import (
    TickReader,
    boot,
    guest_went_on,
    migrate,
    no_userfaultfd,
    one_connection,
    place,
    record_ended,
)

EXPECTED = (
    "the guest goes on, and virt-handler sees Running; the migration succeeds, or ends as failed and the next one does"
)
SLOW = "4Mi"
EVENTS = ("PreparingTarget", "Migrating", "Migrated", "Deleted", LOST_CALL)
# They go and come back at the target, or are about the migration.
CONDITIONS = ("AgentConnected", "AgentVersionNotSupported", "LiveMigratable", "StorageLiveMigratable")
ENDED = "Live migration succeeded"  # in the source's log
FILL = "dd if=/dev/urandom of=/run/fill bs=1M count=96 2>/dev/null"  # memory for post-copy to bring


def migrating(session, result, name, **options):
    """A VM with its guest up and counting on its console, the deaths of its launchers, and what reads the console."""
    vm = MigratingVM(session, name, change=one_connection, **options)
    boot(result, vm)
    time.sleep(2)  # virt-handler has heard what the agent says first
    return vm, Deaths(vm), TickReader(vm)


def goes_on(session, result, vm, deaths, reader, conditions=()):
    """The guest is at the target, or has stayed and goes there by another migration."""
    (migration,) = result.migrations
    result.step("migration has ended", migration.ended, 60)
    result.step("the VMI is at", place, vm)
    if migration.phase == "Succeeded":
        guest_went_on(vm, result, reader, session.nodes[1])
        result.step("source pod ended", record_ended, vm.record)
        vm.pod, vm.record = migration.pod, migration.record
    else:
        result.step("reason", lambda: plain(vm.migration_state().get("failureReason")))
        result.step("the guest goes on at the source", reader.goes_on)
        result.step("target pod ended", record_ended, migration.record)
        reader.stopped = True
        reader.join(2)
        migrate(session, result, vm)
    result.step("AgentConnected on the target", vm.has_condition, "AgentConnected", 40)
    deaths.check(result, EVENTS, (*CONDITIONS, *conditions))
    works(result, vm, "afterwards")
    deaths.end(result)
    return vm


@death("SIGABRT to the source's launcher while it prepares a migration", EXPECTED, place=TWO_NODES)
def launcher_dies_in_preparation_at_source(session, result):
    vm, deaths, reader = migrating(session, result, "dies-source-prepares")
    begin = lambda: result.migrate(vm, session.nodes[1])  # noqa: E731
    result.step("kill", deaths.at, "Initiating live migration.", signal.SIGABRT, begin, measured=True)
    result.step("it had not ended", deaths.came_before, ENDED)
    # virt-handler syncs no VMI that migrates: what it says of a lost call stays until the end.
    return goes_on(session, result, vm, deaths, reader, ("Synchronized",))


@death("SIGSEGV to the target's launcher while it prepares a migration", EXPECTED, place=TWO_NODES)
def launcher_dies_in_preparation_at_target(session, result):
    vm, deaths, reader = migrating(session, result, "dies-target-prepares")
    migration = result.migrate(vm, session.nodes[1])
    line = "Started premigration hook server"
    result.step("kill", deaths.at, line, signal.SIGSEGV, pod=migration.pod, measured=True)
    result.step("the domain had not arrived", deaths.came_before, "The domain arrives")
    return goes_on(session, result, vm, deaths, reader)


@death("SIGKILL to the source's launcher during pre-copy", EXPECTED, place=TWO_NODES)
def launcher_dies_in_precopy_at_source(session, result):
    return dies_in_precopy(session, result, "source", signal.SIGKILL)


@death("SIGABRT to the target's launcher during pre-copy", EXPECTED, place=TWO_NODES)
def launcher_dies_in_precopy_at_target(session, result):
    return dies_in_precopy(session, result, "target", signal.SIGABRT)


def dies_in_precopy(session, result, side, number):
    vm, deaths, reader = migrating(session, result, f"dies-precopy-{side}")
    migration = result.migrate(vm, session.nodes[1], bandwidthPerMigration=SLOW)
    result.step("migration runs", migration.runs)
    time.sleep(3)
    pod = migration.pod if side == "target" else vm.pod
    result.step("kill", deaths.kill, number, pod, measured=True)
    result.step("it had not ended", under_way, migration)
    return goes_on(session, result, vm, deaths, reader)


def under_way(migration):
    state = migration.vm.migration_state()
    if state.get("endTimestamp"):
        raise RuntimeError(plain(state))
    return True


@death("SIGSEGV to the source's launcher during post-copy", EXPECTED, no_userfaultfd, place=TWO_NODES)
def launcher_dies_in_postcopy_at_source(session, result):
    return dies_in_postcopy(session, result, "source", signal.SIGSEGV)


@death("SIGKILL to the target's launcher during post-copy", EXPECTED, no_userfaultfd, place=TWO_NODES)
def launcher_dies_in_postcopy_at_target(session, result):
    return dies_in_postcopy(session, result, "target", signal.SIGKILL)


def dies_in_postcopy(session, result, side, number):
    vm = MigratingVM(session, f"dies-postcopy-{side}", change=one_connection, userfaultfd=True)
    boot(result, vm)
    result.step("guest fills its memory", vm.shell, FILL, 120)
    deaths, reader = Deaths(vm), TickReader(vm)
    migration = result.migrate(
        vm,
        session.nodes[1],
        allowPostCopy=True,
        allowWorkloadDisruption=True,
        completionTimeoutPerGiB=5,
        bandwidthPerMigration="2Mi",
    )
    result.step("post-copy", migration.wait, "mode", lambda state: state.get("mode") == "PostCopy", 90)
    pod = migration.pod if side == "target" else vm.pod
    log = Log(vm.pod, is_new=False)
    deaths.die(number, pod)
    result.step("it had not ended", has_not_ended, log.text())
    result.step("kill", deaths.back, measured=True)
    return goes_on(session, result, vm, deaths, reader)


def has_not_ended(log):
    """At the source."""
    if ENDED in log:
        raise RuntimeError("the migration had ended already")
    return True
