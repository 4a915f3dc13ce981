"""The scenarios: functions with a decorator, in the order in which they run."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from kit.settings import KUBEVIRT, VERSIONS

ONE_NODE, TWO_NODES, CLUSTER = "one node", "two nodes", "cluster"
MODULES = (
    "start",
    "lifecycle",
    "shutdown",
    "failures",
    "launcher_deaths",
    "volumes",
    "network",
    "interfaces",
    "guest_agent",
    "cloud_init",
    "metrics",
    "firmware",
    "backup",
    "virt_handler_restart",
    "hostile_days",
    "stress",
    "launcher_torture",
    "migration",
    "migration_devices",
    "sriov",
    "migration_storage",
    "migration_failures",
    "launcher_deaths_in_migrations",
    "hostile_migrations",
    "growth",
    "version_1_10",
    "cluster_life",
    "cluster_migration",
    "cluster_volumes",
    "cluster_devices",
    "cluster_agent",
    "cluster_faults",
    "cluster_density",
)
# Scenarios of one node that a cluster can run as they are.
ALSO_IN_A_CLUSTER = (
    "paused_start",
    "lifecycle",
    "shutdown",
    "poweroff",
    "shutdown_ignored",
    "shutdown_ignored_without_agent",
    "grace_period_zero",
    "deleted_during_boot",
    "guest_information",
    "secure_boot",
)


@dataclass
class Scenario:
    name: str
    does: str
    expects: str
    run: Callable  # (session, result) -> VM, or None
    place: str
    default: bool
    lacks: Callable  # session -> why it cannot run there, or None
    since: str  # the first version of KubeVirt whose virt-handler can show it

    def mark(self):
        """After its name where not every version can show it."""
        return "" if self.since == VERSIONS[0] else f" ({self.since})"


SCENARIOS = {}


def scenario(does, expects, place=ONE_NODE, default=True, lacks=lambda session: None, since=VERSIONS[0]):
    """Registers a scenario. `does`: what happens; `expects`: what virt-handler must show, as the reference does.
    Those that are not `default` run only by their names. `lacks`: what the machine or
    the launcher lacks for it, or None."""

    def register(function):
        SCENARIOS[function.__name__] = Scenario(
            function.__name__, does, expects, function, place, default, lacks, since
        )
        return function

    return register


def load():
    """Imports all of them, and returns them by name."""
    for module in MODULES:
        importlib.import_module(f"scenarios.{module}")
    return SCENARIOS


def runs_in(each, place, version):
    if VERSIONS.index(each.since) > VERSIONS.index(version):
        return False
    return each.place == place or (place == CLUSTER and each.name in ALSO_IN_A_CLUSTER)


def choose(names, place, version=KUBEVIRT):
    """Those with these names; all default ones where there are no names. KeyError with a name that does not exist."""
    every = {name: each for name, each in load().items() if runs_in(each, place, version)}
    if names:
        return [every[name] for name in names]
    return [each for each in every.values() if each.default]
