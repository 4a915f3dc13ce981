"""Prints the records of several launchers side by side: as text with every difference, or as a Markdown table."""

import json
import os

from kit import comparison, registry


class Variant:
    """A folder of results."""

    def __init__(self, folder):
        self.name = os.path.basename(os.path.normpath(folder))
        self.records = {}
        for entry in sorted(os.listdir(folder)):
            if entry.endswith(".json"):
                with open(os.path.join(folder, entry)) as f:
                    self.records[entry.removesuffix(".json")] = json.load(f)

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
    """None where one of them has not run it."""
    records = reference.records.get(name), variant.records.get(name)
    if any(record is None or "skipped" in record for record in records):
        return None
    return comparison.compare(*records)


def verdict(reference, variant, name):
    found = differences(reference, variant, name)
    return "not compared" if found is None else comparison.verdict(found)


def text(reference, variants, names):
    for name in names:
        yield f"=== {name}"
        for variant in [*variants, reference]:
            yield f"  {variant.name}: {variant.summary(name)}"
            failed = variant.records.get(name, {}).get("failed")
            if failed:
                yield f"    failed: {', '.join(failed)}"
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
    every = registry.load()
    head = ["Scenario", "What virt-handler must show", *(v.name for v in variants), reference.name, *(f"{v.name}: verdict" for v in variants)]
    yield row(head)
    yield row(["---"] * len(head))
    for name in names:
        expects = every[name].expects if name in every else ""
        yield row([f"`{name}`", expects, *(v.summary(name) for v in variants), reference.summary(name),
                   *(verdict(reference, v, name) for v in variants)])
    yield ""
    for variant in variants:
        yield total(reference, variant, names)


def row(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def total(reference, variant, names):
    verdicts = [verdict(reference, variant, name) for name in names]
    equal = sum(each == "equal" for each in verdicts)
    differ = sum(each.startswith("differs") for each in verdicts)
    return f"{variant.name}: {equal} scenarios equal {reference.name}'s, {differ} differ, {len(names) - equal - differ} were not compared."
