"""What virt-handler exports about a running VM."""

import json
import re
import time

from kit import rest
from kit.comparison import flat
from kit.registry import scenario
from kit.steps import boot, end_by_deletion

SCRAPES = 4  # the dirty rate comes with a later one
SCRAPE_INTERVAL = 3  # seconds
# Metrics that cannot be zero for a guest that has booted.
NEVER_ZERO = (
    "cpu_usage_seconds_total",
    "memory_domain_bytes",
    "memory_resident_bytes",
    "memory_available_bytes",
    "memory_usable_bytes",
    "vcpu_seconds_total",
    "storage_read_traffic_bytes_total",
    "storage_iops_read_total",
)
# Of every sample of a VM.
COMMON_LABELS = re.compile(r',?\b(kubernetes_vmi_label_kubevirt_io_nodeName|name|namespace|node)="[^"]*"')
SECTIONS = (
    "domainStats",
    "dirtyRate",
    "guestGetLoad",
    "guestGetCpuStats",
    "guestGetDiskStats",
    "guestGetTime",
    "guestGetVcpus",
    "guestGetMemoryBlockInfo",
    "guestGetUsers",
    "guestGetOsInfo",
    "guestGetDisks",
    "guestGetHostName",
    "guestGetTimezone",
    "guestNetworkGetRoute",
    "guestNetworkGetInterfaces",
    "guestGetMemoryBlocks",
)


@scenario(
    "virt-handler's /metrics and /v1/vmstats are asked for a running VM",
    "the reference's metrics with their labels; vmstats with every section that the guest agent knows",
)
def metrics(session, result):
    vm = session.vm("metrics")
    boot(result, vm)
    time.sleep(5)  # the launcher's statistics may be some seconds old
    result.step("metrics", metric_labels, vm)
    result.step("metrics that are not zero", not_zero, vm)
    result.step("vmstats: sections", lambda: {name: section(vm, name)[0] for name in SECTIONS})
    result.step("vmstats: what the domain statistics have", known_fields, vm)
    end_by_deletion(result, vm)
    return vm


def samples(vm):
    return [
        line
        for line in rest.metrics().splitlines()
        if line.startswith("kubevirt_vmi_") and f'name="{vm.name}"' in line
    ]


def metric_labels(vm):
    found = set()
    for _ in range(SCRAPES):
        found.update(COMMON_LABELS.sub("", line.rsplit(" ", 1)[0]) for line in samples(vm))
        time.sleep(SCRAPE_INTERVAL)
    return dict.fromkeys(sorted(found), "exported")


def not_zero(vm):
    values = {}
    for line in samples(vm):
        name = re.split(r"[{ ]", line)[0].removeprefix("kubevirt_vmi_")
        values[name] = max(values.get(name, 0), float(line.rsplit(" ", 1)[1]))
    return [name for name in NEVER_ZERO if values.get(name)]


def known_fields(vm):
    """Of each value, whether it is set. The dirty rate's depend on time."""
    found = flat(section(vm, "domainStats")[1])
    return {
        path: value for path, value in found.items() if isinstance(value, bool) and "DirtyRate" not in path
    }


def section(vm, name):
    """ "ok" or the error, and the statistics."""
    code, answer = rest.vmstats(f"{name}=true")
    try:
        found = json.loads(answer)[f"{vm.namespace}/{vm.name}"]
    except (ValueError, KeyError):
        return f"{code} {answer.decode(errors='replace')[:200]}", {}
    return found.get("error") or "ok", found.get("stats") or {}
