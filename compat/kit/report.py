"""Prints the records of several launchers side by side: as text with every difference, or as a Markdown table."""

import json
import os
from xml.etree import ElementTree

from kit import comparison, conditions, registry

SHOWN_FAILURES = 3
RECORDED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
KUBEVIRTS_LAUNCHERS = {"v1.9": "kubevirt-v1.9.0", "v1.10": "kubevirt-main"}


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

    def migrations(self, scenario):
        """Each migration's end, mode and seconds, how long the guest's console was silent, and the pods' exit statuses."""
        record = self.records.get(scenario)
        if not record or "skipped" in record:
            return self.summary(scenario)
        modes = [
            s["result"].get("mode")
            for s in record["steps"]
            if s["ok"] and s["step"].endswith("the VMI is at")
        ]
        parts = []
        for index, phases in enumerate(record.get("migration_phases", [])):
            seconds, phase = phases[-1]
            mode = modes[index] if index < len(modes) and phase == "Succeeded" else None
            parts.append(f"{phase}{f' ({mode})' if mode else ''} after {seconds:.1f} s")
        silent = [
            s["result"]["seconds between"]
            for s in record["steps"]
            if s["step"] == "ticker goes on" and s["ok"]
        ]
        if silent:
            parts.append("silent " + " and ".join(f"{seconds:.1f} s" for seconds in silent))
        parts.append("pods " + ", ".join(str(pod["exit"]) for pod in record.get("pods", [])))
        if record["failed"]:
            parts.append("FAILED: " + ", ".join(record["failed"]))
        return "; ".join(parts)

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

    def migrations(self, scenario):
        """Of the first run that has it."""
        return next((run.migrations(scenario) for run in self.runs if scenario in run.records), "not run")

    def failed(self, scenario):
        """Steps that have failed in every run."""
        runs = [run.records[scenario]["failed"] for run in self.runs if scenario in run.records]
        return [step for step in (runs or [[]])[0] if all(step in run for run in runs)]


def reference(version, folder=None):
    """What launchers with this version's virt-handler are compared with: KubeVirt's launcher, or a folder of results."""
    return Reference(folder or f"{RECORDED}/{KUBEVIRTS_LAUNCHERS[version]}")


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
    return comparison.from_all(runs, record)


def without_timeline(reference, variant, name):
    """Who has no timeline of conditions for it, so that those a user sees were not compared."""
    if differences(reference, variant, name) is None:
        return []
    runs = [run.records[name] for run in reference.runs if name in run.records]
    sides = ((reference.name, runs), (variant.name, [variant.records[name]]))
    return [side for side, records in sides if not any(conditions.KEY in record for record in records)]


def verdict(reference, variant, name):
    found = differences(reference, variant, name)
    if found is None:
        return "not compared"
    failed = [step for step in dict.fromkeys(variant.failed(name)) if step not in reference.failed(name)]
    if failed:
        more = f" and {len(failed) - SHOWN_FAILURES} more" if len(failed) > SHOWN_FAILURES else ""
        return "fails: " + "; ".join(failed[:SHOWN_FAILURES]) + more
    return comparison.verdict(found)


def exit_status(reference, variants, names, differences_pass=False):
    """What `compare` ends with: of all scenarios that both sides have run."""
    found = {verdict(reference, variant, name).partition(":")[0] for variant in variants for name in names}
    found.discard("not compared")
    passed = {"equal", "differs"} if differences_pass else {"equal"}
    return 0 if found and found <= passed else 1


def text(reference, variants, names):
    for name in names:
        yield f"=== {name}"
        for each in [*variants, reference]:
            yield f"  {each.name}: {each.summary(name)}"
            if each.failed(name):
                yield f"    failed: {', '.join(each.failed(name))}"
        for variant in variants:
            yield f"  {variant.name}: {verdict(reference, variant, name)}"
            for line in details(reference, variant, name):
                yield "    " + line
            if lacking := without_timeline(reference, variant, name):
                yield f"    conditions over time: not compared, no timeline of {' and '.join(lacking)}"
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


def migrations(reference, variants, names):
    """A table of the migrations alone, with their ends and times."""
    columns = [
        "Scenario",
        reference.name,
        *(v.name for v in variants),
        *(f"{v.name}: verdict" for v in variants),
    ]
    yield row(columns)
    yield row(["---"] * len(columns))
    known = registry.load()
    for name in names:
        if name in known and known[name].place == registry.TWO_NODES:
            cells = [each.migrations(name) for each in [reference, *variants]]
            yield row([f"`{name}`", *cells, *(verdict(reference, v, name) for v in variants)])


def junit(reference, variants, names):
    """A JUnit document: a suite for each variant, a case for each scenario; what differs is its failure."""
    document = ElementTree.Element("testsuites")
    for variant in variants:
        suite = ElementTree.SubElement(document, "testsuite", name=variant.name)
        for name in names:
            seconds = variant.records.get(name, {}).get("seconds", 0)
            case = ElementTree.SubElement(
                suite, "testcase", classname=variant.name, name=name, time=str(seconds)
            )
            found = verdict(reference, variant, name)
            if found == "not compared":
                ElementTree.SubElement(case, "skipped", message=variant.summary(name))
            elif found != "equal":
                failure = ElementTree.SubElement(case, "failure", message=found)
                failure.text = "\n".join(details(reference, variant, name))
        suite.set("tests", str(len(names)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.indent(document)
    return ElementTree.tostring(document, encoding="unicode", xml_declaration=True)


def details(reference, variant, name):
    """Every difference, in lines."""
    for each in differences(reference, variant, name) or []:
        yield str(each)
        yield f"  {reference.name}: {comparison.shown(each.reference)}"
        yield f"  {variant.name}: {comparison.shown(each.other)}"


def row(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def total(reference, variant, names):
    verdicts = [verdict(reference, variant, name) for name in names]
    kinds = [each.partition(":")[0] for each in verdicts]
    untimed = sum(bool(without_timeline(reference, variant, name)) for name in names)
    return (
        f"{variant.name}: of {len(names)} scenarios {kinds.count('equal')} equal {reference.name}'s, "
        f"{kinds.count('differs')} differ, {kinds.count('fails')} fail where {reference.name} does not, "
        f"{kinds.count('not compared')} were not compared."
        + (f" In {untimed} the conditions over time were not compared." if untimed else "")
    )
