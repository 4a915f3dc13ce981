"""The scenarios: functions with a decorator, in the order in which they run."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

ONE_NODE = (
    "start",
    "lifecycle",
    "shutdown",
    "failures",
    "volumes",
    "network",
    "interfaces",
    "guest_agent",
    "metrics",
    "firmware",
    "backup",
    "virt_handler_restart",
    "stress",
)
TWO_NODES = ("migration", "migration_devices", "migration_storage", "migration_failures", "growth")


@dataclass
class Scenario:
    name: str
    does: str
    expects: str
    run: Callable  # (session, result) -> VM, or None
    nodes: int
    default: bool
    lacks: Callable  # () -> why it cannot run here, or None


SCENARIOS = {}


def scenario(does, expects, nodes=1, default=True, lacks=lambda: None):
    """Registers a scenario. `does`: what happens; `expects`: what virt-handler must show, as the reference does.
    Those that are not `default` run only by their names. `lacks`: what the machine lacks for it, or None."""

    def register(function):
        SCENARIOS[function.__name__] = Scenario(
            function.__name__, does, expects, function, nodes, default, lacks
        )
        return function

    return register


def load():
    """Imports all of them, and returns them by name."""
    for module in ONE_NODE + TWO_NODES:
        importlib.import_module(f"scenarios.{module}")
    return SCENARIOS


def choose(names, nodes):
    """Those with these names; all default ones where there are no names. KeyError with a name that does not exist."""
    every = {name: s for name, s in load().items() if s.nodes == nodes}
    if names:
        return [every[name] for name in names]
    return [s for s in every.values() if s.default]
