"""In a cluster: what reaches the guest by its agent, and what is known of it."""

import re
import time

from cluster import objects
from kit import rest
from kit.normalize import without_times
from kit.registry import CLUSTER, scenario
from kit.steps import boot, end_by_deletion
from scenarios.guest_agent import KEY, arrives, credentials
from scenarios.metrics import SCRAPE_INTERVAL, SCRAPES

REFRESH_TIMEOUT = 240  # seconds: the kubelet refreshes a Secret's files within its own interval
KEYS_OF_ROOT = "cut -d' ' -f3 /root/.ssh/authorized_keys"
THAW_SECONDS = 8


@scenario(
    "the agent gets SSH keys from a Secret, which then changes",
    "AccessCredentialsSynchronized True; the guest has the key, and the other one after the change",
    place=CLUSTER,
)
def ssh_keys_by_the_agent(session, result):
    objects.apply(session, keys(session, "first"))
    vm = session.vm("ssh-keys", change=with_keys)
    boot(result, vm)
    result.step("AccessCredentialsSynchronized", synchronized, vm)
    result.step("guest: keys", vm.shell, KEYS_OF_ROOT)
    objects.apply(session, keys(session, "second"))
    result.step("the new key arrives", arrives, vm, "second@example", REFRESH_TIMEOUT)
    result.step("guest: keys after the change", vm.shell, KEYS_OF_ROOT)
    end_by_deletion(result, vm)
    return vm


def keys(session, name):
    return objects.secret(session.namespace, "keys", {"key": KEY.format("A", name)})


def with_keys(vmi):
    key = {
        "source": {"secret": {"secretName": "keys"}},
        "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}},
    }
    vmi["spec"]["accessCredentials"] = [{"sshPublicKey": key}]


def synchronized(vm):
    def is_true(vmi):
        found = credentials(vmi)
        return found and found["status"] == "True"

    vm.wait("True", is_true, 120)
    return without_times(vm.condition("AccessCredentialsSynchronized"))


@scenario(
    "virt-freezer by kubectl exec in the pod, as Velero's hooks call it; then with a timeout",
    "exit status 0; fsFreezeStatus frozen, then none; after the timeout the guest thaws by itself",
    place=CLUSTER,
)
def frozen_by_virt_freezer(session, result):
    vm = session.vm("virt-freezer")
    boot(result, vm)
    mark = vm.recorder.mark()
    result.step("freeze", freezer, vm, "--freeze")
    result.step("frozen", follows, vm, True, mark)
    mark = vm.recorder.mark()
    result.step("unfreeze", freezer, vm, "--unfreeze")
    result.step("thawed", follows, vm, False, mark)
    mark = vm.recorder.mark()
    result.step(
        "freeze with a timeout", freezer, vm, "--freeze", "--unfreezeTimeoutSeconds", str(THAW_SECONDS)
    )
    result.step("frozen again", follows, vm, True, mark)
    result.step("thawed by itself", follows, vm, False, vm.recorder.mark(), THAW_SECONDS + 30)
    end_by_deletion(result, vm)
    return vm


def freezer(vm, *arguments):
    """Its exit status."""
    whom = ("--name", vm.name, "--namespace", vm.namespace)
    return vm.pod.execute("/usr/bin/virt-freezer", *arguments, *whom, timeout=90)["exit"]


def follows(vm, frozen, mark, timeout=30):
    """Whether fsFreezeStatus says so, from the version `mark` of the VMI on."""
    says_so = lambda vmi: (vmi["status"].get("fsFreezeStatus") == "frozen") == frozen  # noqa: E731
    return vm.wait("fsFreezeStatus", says_so, timeout, mark) > 0


@scenario(
    "the /metrics of virt-handler's pod are asked for a running VM",
    "the names of the reference's kubevirt_vmi metrics",
    place=CLUSTER,
)
def metrics_of_a_vm(session, result):
    vm = session.vm("metrics-of-a-vm")
    boot(result, vm)
    time.sleep(5)  # the launcher's statistics may be some seconds old
    address = session.handler.pod(vm.node())["status"]["podIP"]
    result.step("metrics", scraped, address, vm.name)
    end_by_deletion(result, vm)
    return vm


def scraped(address, name):
    """Some come with a later scrape. Nobody needs a right to ask: virt-handler asks for no certificate here."""
    found = set()
    for _ in range(SCRAPES):
        found.update(metric_names(rest.metrics(address), name))
        time.sleep(SCRAPE_INTERVAL)
    return sorted(found)


def metric_names(text, name):
    """Of the VM's samples in an answer of /metrics."""
    return {
        re.split(r"[{ ]", line)[0]
        for line in text.splitlines()
        if line.startswith("kubevirt_vmi_") and f'name="{name}"' in line
    }
