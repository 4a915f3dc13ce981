"""In a cluster: parts of it fail or are away while a VM runs."""

import time

from kit.registry import CLUSTER, scenario
from kit.steps import boot, end_by_deletion, works
from kit.wait import until

AWAY_SECONDS = 60
# A client whose watch has failed for a minute tries again after up to 30 s.
WATCH_AGAIN_SECONDS = 60


@scenario(
    "virt-handler's pod is deleted", "another one is Ready; pause and unpause work again", place=CLUSTER
)
def handler_pod_deleted(session, result):
    vm = session.vm("handler-deleted")
    boot(result, vm)
    old = session.handler.pod(vm.node())["metadata"]["name"]
    session.cluster.kubectl("-n", "kubevirt", "delete", "pod", old, "--wait=false")
    result.step("another virt-handler", other_handler, session, vm, old, measured=True)
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    return vm


def other_handler(session, vm, old):
    def is_there():
        return session.handler.pod(vm.node())["metadata"]["name"] != old and session.handler.is_ready(
            vm.node()
        )

    return until("another virt-handler that is ready", is_there, 240, 1)


@scenario("SIGKILL to virt-handler", "its container starts again; pause and unpause work", place=CLUSTER)
def handler_killed(session, result):
    vm = session.vm("handler-killed")
    boot(result, vm)
    result.step("processes killed", lambda: session.cluster.nodes[vm.node()].kill("virt-handler"))
    time.sleep(5)
    result.step(
        "ready again",
        lambda: until("virt-handler", lambda: session.handler.is_ready(vm.node()), 240, 1),
        measured=True,
    )
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    return vm


@scenario("the kubelet is killed and starts again", "the VM runs on; pause and unpause work", place=CLUSTER)
def kubelet_restarted(session, result):
    vm = session.vm("kubelet")
    boot(result, vm)
    result.step("processes killed", lambda: session.cluster.nodes[vm.node()].kill("kubelet"))
    time.sleep(20)
    works(result, vm, "afterwards")
    end_by_deletion(result, vm)
    return vm


@scenario(
    f"the API server is away for {AWAY_SECONDS} s",
    "the VM runs on; pause and unpause work again",
    place=CLUSTER,
)
def api_server_away(session, result):
    vm = session.vm("api-away")
    boot(result, vm)
    session.cluster.pause_api_server(AWAY_SECONDS)
    until("the API server", lambda: session.cluster.raw("/readyz") == "ok", 60, 1)
    result.step(
        "virt-handler is ready", lambda: until("it", lambda: session.handler.is_ready(vm.node()), 120, 1)
    )
    works(result, vm, "afterwards", WATCH_AGAIN_SECONDS)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "the pod is deleted at once (grace period 0)", "a final phase; the VMI can be deleted", place=CLUSTER
)
def pod_forced(session, result):
    vm = session.vm("pod-forced")
    boot(result, vm)
    vm.pod.kill()
    result.step("final phase", lambda: vm.final_phase(120).split()[0])
    end_by_deletion(result, vm)
    return vm


def killed_in_the_pod(session, result, name, program):
    vm = session.vm(name)
    boot(result, vm)
    result.step("processes killed", lambda: vm.pod.execute("pkill", "-9", "-x", program[:15])["exit"])
    result.step("final phase", lambda: vm.final_phase(90).split()[0])
    end_by_deletion(result, vm)
    return vm


@scenario("SIGKILL to QEMU in the pod", "Failed; the pod ends", place=CLUSTER)
def pod_qemu_killed(session, result):
    return killed_in_the_pod(session, result, "pod-qemu", "qemu-system-x86_64")


@scenario("SIGKILL to virt-launcher in the pod", "Failed; the pod ends", place=CLUSTER)
def pod_launcher_killed(session, result):
    return killed_in_the_pod(session, result, "pod-launcher", "virt-launcher")
