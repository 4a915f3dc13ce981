"""Prints the records of several launchers side by side: as text with every difference, or as a Markdown table."""

import json
import os

from kit import comparison, registry

SHOWN_FAILURES = 3


class Variant:
    """A folder of results."""

    def __init__(self, folder):
        self.name = os.path.basename(os.path.normpath(folder))
        self.records = {}
        for entry in sorted(os.listdir(folder)):
            if entry.endswith(".json"):
                with open(os.path.join(folder, entry)) as f:
                    self.records[entry.removesuffix(".json")] = json.load(f)

    def failed(self, scenario):
        return self.records.get(scenario, {}).get("failed", [])

    def summary(self, scenario):
        """What one cell of the table says: how many steps went well, and the times that users feel."""
        record = self.records.get(scenario)
        if not record:
            return "not run"
        if "skipped" in record:
            return "not run: " + record["skipped"]
        steps = record["steps"]
        good = sum(step["ok"] for step in steps)
        text = f"{good} of {len(steps)} steps" if record["failed"] else f"{good} steps"
        return ", ".join([text, *times(steps)])


class Reference:
    """Several runs of the launcher that the others are compared with: a folder of folders of results, or one run."""

    def __init__(self, folder):
        folders = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
        self.name = os.path.basename(os.path.normpath(folder))
        self.runs = [Variant(path) for path in folders] or [Variant(folder)]

    def summary(self, scenario):
        """Of the first run that has it."""
        return next((run.summary(scenario) for run in self.runs if scenario in run.records), "not run")

    def failed(self, scenario):
        """Steps that have failed in every run."""
        runs = [run.records[scenario]["failed"] for run in self.runs if scenario in run.records]
        return [step for step in (runs or [[]])[0] if all(step in run for run in runs)]


def times(steps):
    """Seconds to the phases that users wait for, each at its first step."""
    first = {}
    for step in steps:
        first.setdefault(step["step"], step)
    for label, text in (("phase Running", "Running"), ("gone", "gone")):
        if label in first and first[label]["ok"]:
            yield f"{text} {first[label]['seconds']:.1f} s"


def scenarios(variants):
    """Names in the order of the scenarios; names of records that are no scenario any more come last."""
    found = {name for variant in variants for name in variant.records}
    known = [name for name in registry.load() if name in found]
    return known + sorted(found - set(known))


def differences(reference, variant, name):
    """From all runs of the reference; None where one side has not run it."""
    record = variant.records.get(name)
    runs = [run.records[name] for run in reference.runs if name in run.records]
    if not runs or record is None or any("skipped" in each for each in [record, *runs]):
        return None
    return comparison.common([comparison.compare(run, record) for run in runs])


def verdict(reference, variant, name):
    found = differences(reference, variant, name)
    if found is None:
        return "not compared"
    failed = [step for step in dict.fromkeys(variant.failed(name)) if step not in reference.failed(name)]
    if failed:
        more = f" and {len(failed) - SHOWN_FAILURES} more" if len(failed) > SHOWN_FAILURES else ""
        return "fails: " + "; ".join(failed[:SHOWN_FAILURES]) + more
    return comparison.verdict(found)


def text(reference, variants, names):
    for name in names:
        yield f"=== {name}"
        for each in [*variants, reference]:
            yield f"  {each.name}: {each.summary(name)}"
            if each.failed(name):
                yield f"    failed: {', '.join(each.failed(name))}"
        for variant in variants:
            yield f"  {variant.name}: {verdict(reference, variant, name)}"
            for each in differences(reference, variant, name) or []:
                yield f"    {each.where}: {each.what}".rstrip(": ")
                yield f"      {reference.name}: {comparison.shown(each.reference)}"
                yield f"      {variant.name}: {comparison.shown(each.other)}"
        yield ""
    for variant in variants:
        yield total(reference, variant, names)


def markdown(reference, variants, names):
    columns = [
        "Scenario",
        *(v.name for v in variants),
        reference.name,
        *(f"{v.name}: verdict" for v in variants),
    ]
    yield row(columns)
    yield row(["---"] * len(columns))
    for name in names:
        cells = [each.summary(name) for each in [*variants, reference]]
        yield row([f"`{name}`", *cells, *(verdict(reference, v, name) for v in variants)])
    yield ""
    for variant in variants:
        yield total(reference, variant, names)


def row(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def total(reference, variant, names):
    verdicts = [verdict(reference, variant, name) for name in names]
    kinds = [each.partition(":")[0] for each in verdicts]
    return (
        f"{variant.name}: of {len(names)} scenarios {kinds.count('equal')} equal {reference.name}'s, "
        f"{kinds.count('differs')} differ, {kinds.count('fails')} fail where {reference.name} does not, "
        f"{kinds.count('not compared')} were not compared."
    )
