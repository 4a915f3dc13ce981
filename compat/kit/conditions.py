"""The conditions of a VMI over time: which ones a user sees, and for how long. Pure: takes and returns data.

A timeline is a list of [from, to, type, status, reason], in seconds since the record's start. A condition that goes and comes
back is there twice.
"""

from kit.normalize import plain

KEY = "condition_timeline"  # in a record
SEEN_SECONDS = 2.0  # what goes sooner is seen by nobody
NOT_FROM_VIRT_HANDLER = ("Ready",)


def timeline(versions, end):
    """Of the versions of a VMI: (seconds, event type, object). `end`: seconds, when the record ends."""
    spans, present = [], {}
    for seconds, event, vmi in versions:
        shown = set() if event == "DELETED" else set(conditions(vmi))
        for key in set(present) - shown:
            present.pop(key)[1] = seconds
        for key in sorted(shown - set(present)):
            present[key] = [seconds, end, *key]
            spans.append(present[key])
    return spans


def conditions(vmi):
    """Type, status and reason of each."""
    for condition in (vmi.get("status") or {}).get("conditions") or []:
        if condition["type"] not in NOT_FROM_VIRT_HANDLER:
            yield condition["type"], condition.get("status", ""), plain(condition.get("reason", ""))


def longest(spans):
    """(type, status, reason) -> the seconds for which it was there at a time, at most."""
    out = {}
    for begin, end, *key in spans:
        out[tuple(key)] = max(out.get(tuple(key), 0.0), end - begin)
    return out


def changes(reference, other):
    """(condition, seconds, seconds) of each that a user sees on one side only. None for records without a timeline."""
    if KEY not in reference or KEY not in other:
        return
    first, second = longest(reference[KEY]), longest(other[KEY])
    for key in sorted(set(first) | set(second)):
        a, b = first.get(key, 0.0), second.get(key, 0.0)
        if (a > SEEN_SECONDS) != (b > SEEN_SECONDS):
            yield " ".join(word for word in key if word), a, b
