"""Compares the records of one scenario for two launchers. Pure: takes and returns data.

Times never count. Nor does what is inside the pod: its processes and the launcher's log.
"""

import json
import re
from dataclasses import dataclass

from kit import conditions
from kit.normalize import plain, unrelated

SHOWN_CHARACTERS = 400
# Compared field by field; any other key that a scenario has recorded is compared as a whole, under
# its own name.
STATUS_FIELDS = ("running_status", "attached_status", "status")
NOT_COMPARED = {
    "steps",
    "failed",
    "events",
    "handler_log",
    "launcher_log",
    "phases",
    "exit",
    "left_running",
    "zombies",
    "pod_notes",
    "seconds",
    "seconds_to_gone",
    "pods",
    "migration_state",
    "migration_phases",
    conditions.KEY,
    *STATUS_FIELDS,
}


# What is known of the guest agent some time after the agent has connected; the scenario
# guest_information is about it, and the timeline of conditions. Of two active pods, which have one
# name here, the node is chance; migrations compare both.
CHANCE_IN_STATUS = re.compile(r"guestOSInfo|AgentVersionNotSupported|activePods\.<uid>")
# That a process or its connection has ended is seen by chance, in one place or another. Phases and
# exit status say it too.
LOST_CONNECTION = re.compile(
    r"[Cc]onnection re(set|fused)|\bEOF\b|[Bb]roken pipe|closed network connection|Error while dialing|console\.go"
    r"|Could not get owner Pid|failed opening path root|failed to find pod UID|Failed to connect socket"
    r"|unresponsive|client socket is closed|client connection is closing|cmd client socket|DomainstatsScraper, got 0|launcher-sock: no such file"
)
CHANCE = "lost connections"
# virt-handler's proxies for a migration: in the status, and in the event that says so.
PROXY_PORTS = "targetDirectMigrationNodePorts"
PORTS = re.compile(r"on ports: [\d,]+")


@dataclass
class Difference:
    where: str  # steps, phases, status, events, virt-handler's errors, exit status, …
    what: str
    reference: object
    other: object

    def __str__(self):
        return f"{self.where}: {self.what}".rstrip(": ")

    def key(self):
        """Equal for the same difference from another run of the reference."""
        return self.where, self.what, str(self.other)


def compare(reference, other):
    """All differences between two records, grouped by where they are."""
    return [
        *steps(reference, other),
        *sequence("phases", *(without_seconds(record.get("phases", [])) for record in (reference, other))),
        *statuses(reference, other),
        *events(reference, other),
        *logs(reference.get("handler_log", []), other.get("handler_log", [])),
        *exit_status(reference, other),
        *migrations(reference, other),
        *others(reference, other),
    ]


def from_all(runs, other):
    """The differences from every one of several runs of the reference. A run without a timeline of conditions does not say
    which ones a user sees."""
    found = common([compare(run, other) for run in runs])
    timed = [list(seen_conditions(run, other)) for run in runs if conditions.KEY in run]
    return found + (common(timed) if timed else [])


def common(runs):
    first, *others = runs
    return [each for each in first if all(each.key() in {other.key() for other in run} for run in others)]


def verdict(differences):
    """One cell of the table. What depends on chance is not in it."""
    counts = {}
    for difference in differences:
        if difference.where == CHANCE:
            continue
        counts[difference.where] = counts.get(difference.where, 0) + 1
    return "differs: " + ", ".join(f"{where} ({n})" for where, n in counts.items()) if counts else "equal"


# ---- what is compared ----------------------------------------------------------------------------


def steps(reference, other):
    first, second = numbered(reference["steps"]), numbered(other["steps"])
    for label in [*first, *(label for label in second if label not in first)]:
        a, b = first.get(label), second.get(label)
        if a is None or b is None:
            yield Difference("steps", label, outcome(a), outcome(b))
        elif not a.get("measured"):
            yield from step(label, a, b)


def step(label, a, b):
    if a["ok"] != b["ok"]:
        yield Difference("steps", label, outcome(a), outcome(b))
    elif isinstance(a["result"], (dict, list)) and isinstance(b["result"], (dict, list)):
        for path, x, y in fields(a["result"], b["result"]):
            yield Difference("steps", f"{label}: {path}", x, y)
    elif not same(a["result"], b["result"]) and a["ok"]:
        yield Difference("steps", label, a["result"], b["result"])


def outcome(found):
    if found is None:
        return "not reached"
    return found["result"] if found["ok"] else f"failed: {found['result']}"


def numbered(found):
    """Label -> step; a label that comes again gets a number."""
    out = {}
    for each in found:
        label, count = each["step"], 2
        while label in out:
            label, count = f"{each['step']} ({count})", count + 1
        out[label] = each
    return out


def statuses(reference, other):
    for name in STATUS_FIELDS:
        for path, x, y in fields(*(without_ports(record.get(name)) for record in (reference, other))):
            if not CHANCE_IN_STATUS.search(path):
                yield Difference("status", f"{name}{path}", x, y)


def seen_conditions(reference, other):
    for condition, a, b in conditions.changes(reference, other):
        yield Difference("conditions over time", condition, f"for {a:.1f} s", f"for {b:.1f} s")


def events(reference, other):
    """An event is its type, reason and message; how often it came depends on time."""
    first, second = (
        [
            (kind, reason, PORTS.sub("on ports: <ports>", plain(text)))
            for kind, reason, text, *_ in record.get("events", [])
        ]
        for record in (reference, other)
    )
    for event in first:
        if event not in second:
            yield Difference(kind_of("events", event[2]), event[1], event, None)
    for event in second:
        if event not in first:
            yield Difference(kind_of("events", event[2]), event[1], None, event)


def logs(reference, other):
    """virt-handler's errors and warnings; of two nodes, by node."""
    if isinstance(reference, dict):
        for node in reference:
            yield from logs(reference[node], other.get(node, []))
        return
    first, second = (
        {message(line): line for line in lines if not unrelated(line)} for lines in (reference, other)
    )
    for text, line in first.items():
        if text not in second:
            yield Difference(kind_of("virt-handler's errors", text), text, line, None)
    for text, line in second.items():
        if text not in first:
            yield Difference(kind_of("virt-handler's errors", text), text, None, line)


def kind_of(where, text):
    return CHANCE if LOST_CONNECTION.search(text) else where


def message(line):
    """Without its count, and without the line of virt-handler's source, which is another one in each version."""
    return re.sub(r"(\.go):\d+\]", r"\1]", re.sub(r" x\d+$", "", plain(line)))


def exit_status(reference, other):
    if reference.get("exit") != other.get("exit"):
        yield Difference("exit status", "of the pod", reference.get("exit"), other.get("exit"))
    first, second = (
        [[pod["node"], pod["exit"]] for pod in record.get("pods", [])] for record in (reference, other)
    )
    if first != second:
        yield Difference("exit status", "of the pods", first, second)


def migrations(reference, other):
    phases = [
        [without_seconds(each) for each in record.get("migration_phases", [])]
        for record in (reference, other)
    ]
    yield from sequence("migration phases", *phases)
    first, second = (histories(record.get("migration_state", [])) for record in (reference, other))
    for field in sorted(set(first) | set(second)):
        if first.get(field) != second.get(field):
            yield Difference("migration state", field, first.get(field), second.get(field))


def histories(changes):
    """Field -> its values, one after the other. Which fields come in one version of the VMI is chance."""
    out = {}
    for _, changed in changes:
        for field, text in changed.items():
            value = without_ports({field.rpartition(".")[2]: json.loads(text)})
            out.setdefault(field, []).extend(value.values())
    return out


def others(reference, other):
    for name in sorted((set(reference) | set(other)) - NOT_COMPARED):
        for path, x, y in fields(reference.get(name), other.get(name)):
            yield Difference(name.replace("_", " "), path, x, y)


# ---- how values are compared ---------------------------------------------------------------------


def sequence(where, first, second):
    if first != second:
        yield Difference(where, "", first, second)


def without_seconds(found):
    return [value for _, value in found]


def without_ports(value):
    """The ports of virt-handler's proxies are the kernel's choice: of port -> purpose the purposes remain."""
    if isinstance(value, list):
        return [without_ports(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: sorted(item.values()) if key == PROXY_PORTS and isinstance(item, dict) else without_ports(item)
        for key, item in value.items()
    }


def same(a, b):
    """Numbers with a fraction are times; so is the end of "Succeeded at 12.3" and of "Failed after 3.1 s"."""
    if isinstance(a, float) and isinstance(b, float):
        return True
    if isinstance(a, str) and isinstance(b, str):
        return without_time(a) == without_time(b)
    return a == b


def without_time(text):
    return re.sub(r" (at|after) [\d.]+( s)?$", "", text)


def fields(reference, other):
    """(path, value, value) of every field that differs."""
    first, second = flat(reference), flat(other)
    for path in sorted(set(first) | set(second)):
        x, y = first.get(path), second.get(path)
        if not same(x, y) and not (x is None and y is None):
            yield path, x, y


def flat(value, path=""):
    """Path -> scalar, or list of scalars. Elements of lists go by their type or name, where they have one."""
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}.{key}").items()}
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        out = {}
        for index, item in enumerate(value):
            name = (item.get("type") or item.get("name")) if isinstance(item, dict) else None
            out.update(flat(item, f"{path}[{name or index}]"))
        return out
    return {path: value}


def shown(value):
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
