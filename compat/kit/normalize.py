"""Takes out of texts what differs from run to run: times, uids, process ids, ports."""

import copy
import json
import re
from collections import Counter

TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d{4}-\d\d-\d\d [\d:.]+ \+0000 UTC( m=\+[\d.]+)?")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
REPORTED_LEVELS = ("error", "warning", "raw", "fatal", "panic")
# Of virt-handler's log, what is about the machine and not about the launcher.
# Conflicts of two writers are part of optimistic locking.
UNRELATED = (
    "device plugin",
    "failed to load the certificate",
    "multipath",
    "node-labeller",
    "TLS handshake",
    "the object has been modified",
)


def plain(text):
    text = UUID.sub("<uid>", TIME.sub("<time>", str(text)))
    text = re.sub(r"\bproc/\d+", "proc/<pid>", text)
    text = re.sub(r"\b([IWEF])\d{4} [\d:.]+ +\d+ ", r"\1<time> <pid> ", text)  # klog's lines
    text = re.sub(r"/proc/self/fd/\d+", "/proc/self/fd/<n>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", text)
    text = re.sub(r"\b(hp-volume|virt-launcher-[a-z0-9-]+)-[0-9a-z]{5}\b", r"\1-<id>", text)
    return re.sub(r"0x[0-9a-f]{4,}", "<ptr>", text)


def without_addresses(text):
    return re.sub(r"0\.0\.0\.0:\d+|\[::\]:\d+|10\.245\.0\.\d+:\d+", "<address>", text)


def status(vmi):
    """The VMI's status, comparable between runs."""
    out = copy.deepcopy(vmi.get("status") or {})
    conditions = [c for c in out.get("conditions", []) if c["type"] != "Ready"]  # virt-controller's
    for condition in conditions:
        for key in ("lastProbeTime", "lastTransitionTime"):
            condition[key] = "<time>" if condition.get(key) else None
    out["conditions"] = sorted(conditions, key=lambda condition: condition["type"])
    out["phaseTransitionTimestamps"] = [p["phase"] for p in out.get("phaseTransitionTimestamps", [])]
    return json.loads(plain(json.dumps(out)))


def without_times(condition):
    return {key: value for key, value in condition.items() if "Time" not in key}


def unrelated(text):
    return any(word in text for word in UNRELATED)


def distinct(lines):
    """The distinct errors and warnings of a log, in order, each with " x<count>"."""
    counts = Counter()
    for line in lines:
        if line.get("level") not in REPORTED_LEVELS:
            continue
        reason = f" | {line['reason']}" if line.get("reason") else ""
        text = plain(f"{line['level']}: {line.get('msg')}{reason} [{line.get('pos', '')}]")
        text = re.sub(r"pid \d+|process \d+", "pid N", text)
        if not unrelated(text):
            counts[text] += 1
    return [f"{text} x{count}" for text, count in counts.items()]
