"""In a cluster: migrations by virt-controller, between the launchers of the two nodes, and by what operators do."""

import time

from cluster.cluster import OWN_TAG
from cluster.vm import pods_path
from kit import kube
from kit.kube import phase
from kit.registry import CLUSTER, scenario
from kit.steps import boot, end_by_deletion, works
from kit.wait import until

MIGRATION_TIMEOUT = 180  # seconds
UPDATE_TIMEOUT = 600
NODES = ("node01", "node02")
COUNTER = "i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 1; done &"


def migrations_path(namespace, name=""):
    return f"{kube.KUBEVIRT}/namespaces/{namespace}/virtualmachineinstancemigrations/{name}".rstrip("/")


def movable(vmi):
    vmi["spec"]["evictionStrategy"] = "LiveMigrate"
    vmi["spec"].pop("nodeSelector", None)
    interfaces = [{"name": "default", "masquerade": {}}]
    vmi["spec"]["domain"]["devices"].update(autoattachPodInterface=True, interfaces=interfaces)
    vmi["spec"]["networks"] = [{"name": "default", "pod": {}}]


def migrate(vm, target):
    """To that node, by a VirtualMachineInstanceMigration; its last phase."""
    name = f"{vm.name}-{int(time.time())}"
    spec = {"vmiName": vm.name, "addedNodeSelector": {"kubernetes.io/hostname": target}}
    kube.create(
        migrations_path(vm.namespace),
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name},
            "spec": spec,
        },
    )
    path = migrations_path(vm.namespace, name)
    return until("the migration's end", lambda: final(kube.get(path)), MIGRATION_TIMEOUT)


def final(migration):
    return phase(migration) if phase(migration) in ("Succeeded", "Failed") else None


def other(node):
    return next(name for name in NODES if name != node)


@scenario(
    "a running guest goes to the other node and back; with two launchers, to the other launcher and back",
    "Succeeded twice; the guest's counter goes on; pause and unpause work at the target",
    place=CLUSTER,
)
def there_and_back(session, result):
    vm = session.vm("there-and-back", change=movable)
    boot(result, vm)
    result.step("counter", vm.shell, COUNTER + " sleep 2; test -s /tmp/count && echo counts")
    for turn in ("there", "back"):
        target = other(vm.node())
        result.step(turn, migrate, vm, target)
        result.step(
            f"{turn}: node",
            lambda target=target: vm.wait("node", lambda vmi: vmi["status"]["nodeName"] == target, 30) > 0,
        )
        vm.socket = None  # the console is another virt-handler's
        result.step(f"{turn}: counter goes on", goes_on, vm)
        works(result, vm, turn)
    end_by_deletion(result, vm)
    return vm


def goes_on(vm):
    first = int(vm.shell("cat /tmp/count"))
    time.sleep(3)
    return int(vm.shell("cat /tmp/count")) > first


@scenario(
    "the node of a running guest is drained: its pod is evicted, and the guest goes to the other node",
    "an evacuation migration; Running on the other node",
    place=CLUSTER,
)
def drain(session, result):
    vm = session.vm("drain", change=movable)
    boot(result, vm)
    node = vm.node()
    session.cluster.kubectl("cordon", node)
    try:
        result.step("drain", lambda: drained(session, node))
        result.step(
            "other node",
            vm.wait,
            "node",
            lambda vmi: vmi["status"].get("nodeName") != node,
            MIGRATION_TIMEOUT,
        )
        result.step("Running", lambda: phase(vm.latest))
    finally:
        session.cluster.kubectl("uncordon", node)
    end_by_deletion(result, vm)
    return vm


def drained(session, node):
    session.cluster.kubectl(
        "drain",
        node,
        "--delete-emptydir-data",
        "--pod-selector=kubevirt.io=virt-launcher",
        "--timeout=180s",
        timeout=200,
    )
    return True


@scenario(
    "the API is asked to evict the pod of a running guest",
    "answer 429, and an evacuation migration; the guest answers on the other node",
    place=CLUSTER,
)
def eviction_by_api(session, result):
    vm = session.vm("eviction", change=movable)
    boot(result, vm)
    node = vm.node()
    result.step("answer", evict, vm)
    result.step("the evacuation's end", until, "it", lambda: evacuation(vm), MIGRATION_TIMEOUT, 1)
    result.step(
        "other node", lambda: vm.wait("it", lambda vmi: vmi["status"].get("nodeName") != node, 30) > 0
    )
    vm.socket = None  # the console is another virt-handler's
    result.step("guest answers", vm.shell, "echo hello")
    end_by_deletion(result, vm)
    return vm


def evict(vm):
    """The status code of the answer."""
    name = vm.pod.current()
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    try:
        kube.create(f"{pods_path(vm.namespace)}/{name}/eviction", body)
    except kube.ApiError as error:
        return error.code
    return "evicted"


def evacuation(vm):
    """The last phase of the migration that the eviction has caused; None before. Those of an earlier VMI are older."""
    begin = vm.latest["metadata"]["creationTimestamp"]
    for each in kube.get(migrations_path(vm.namespace))["items"]:
        if each["spec"]["vmiName"] == vm.name and each["metadata"]["creationTimestamp"] > begin:
            return final(each)
    return None


@scenario(
    "an operator changes the launcher's image while a VM runs, to the other launcher's and back",
    "KubeVirt Available; the workload updater migrates the VM to the image that was set, each time",
    place=CLUSTER,
    default=False,
)
def image_swap(session, result):
    session.cluster.set_launcher(session.name)
    try:
        vm = session.vm("image-swap", change=movable)
        boot(result, vm)
        for turn, tag in (("there", session.other_launcher()), ("back", session.name)):
            result.step(f"{turn}: KubeVirt Available", session.cluster.set_launcher, tag)
            result.step(f"{turn}: the VM runs on that image", runs_on, vm, tag)
            vm.socket = None
            result.step(f"{turn}: guest answers", vm.shell, "echo hello")
        end_by_deletion(result, vm)
    finally:
        session.cluster.set_launcher(OWN_TAG)
    return vm


def runs_on(vm, tag):
    path = f"/api/v1/namespaces/{vm.namespace}/pods/"

    def is_there():
        pod = kube.get(path + vm.pod.current())
        image = next(each["image"] for each in pod["spec"]["containers"] if each["name"] == "compute")
        return image.endswith(":" + tag)

    return until(f"an image with the tag {tag}", is_there, UPDATE_TIMEOUT, 2)
