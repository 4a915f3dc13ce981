"""What goes wrong: processes are killed, the guest crashes, a VMI cannot start, a disk is full."""

import os
import signal
import subprocess
import time

from kit import launcher_deaths, objects
from kit.kube import phase
from kit.normalize import plain, status
from kit.registry import scenario
from kit.steps import boot, end_after_final_phase, end_by_deletion
from kit.wait import until


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


@scenario("SIGKILL to QEMU", "Failed")
def qemu_killed(session, result):
    vm = session.vm("qemu-killed")
    boot(result, vm)
    result.step("kill", lambda: kill(vm.pod.guests()))
    result.step("final phase", vm.final_phase)
    end_after_final_phase(result, vm)
    return vm


@scenario(
    "SIGKILL to virt-launcher; its monitor ends the rest",
    "Failed; the pod ends",
    lacks=launcher_deaths.starts_again,
)
def launcher_killed(session, result):
    vm = session.vm("launcher-killed")
    boot(result, vm)
    result.step("kill", vm.pod.kill_launcher, signal.SIGKILL)
    result.step("pod ended", vm.pod_ended)
    result.step("final phase", vm.final_phase, 90)
    end_by_deletion(result, vm)
    return vm


@scenario("SIGKILL to the whole pod", "Failed")
def pod_killed(session, result):
    vm = session.vm("pod-killed")
    boot(result, vm)
    result.step("kill", vm.pod.signal, signal.SIGKILL)
    result.step("pod ended", vm.pod_ended)
    result.step("final phase", vm.final_phase, 90)
    end_by_deletion(result, vm)
    return vm


@scenario(
    "SIGKILL to virtqemud under a running guest",
    "another virtqemud; pause and unpause work again; the guest runs on",
)
def daemon_killed(session, result):
    vm = session.vm("daemon-killed")
    boot(result, vm)
    result.step("kill", lambda: bool(kill(vm.pod.pids("virtqemud"))))
    result.step("another virtqemud", lambda: bool(until("virtqemud", lambda: vm.pod.pids("virtqemud"), 15)))
    time.sleep(14)
    result.record("versions_after", phase(vm.latest))
    mark = vm.recorder.mark()
    result.step("pause", vm.put, "pause")
    result.step("condition Paused", vm.has_condition, "Paused", 20, mark)
    result.step("unpause", vm.put, "unpause")
    result.step("guest answers", vm.shell, "echo hello")
    result.step("AgentConnected", lambda: bool(vm.condition("AgentConnected")))
    end_by_deletion(result, vm)
    return vm


@scenario("the guest's kernel panics, with a panic device", "Failed, and an event that says so")
def panic(session, result):
    def change(vmi):
        vmi["spec"]["domain"]["devices"]["panicDevices"] = [{"model": "isa"}]

    vm = session.vm("panic", change=change)
    boot(result, vm)
    vm.console().send("echo c >/proc/sysrq-trigger\n")
    result.step("final phase", vm.final_phase, 40)
    end_after_final_phase(result, vm)
    return vm


@scenario("a watchdog that nobody feeds expires, with action poweroff", "Failed; the pod ends")
def watchdog(session, result):
    def change(vmi):
        device = {"name": "watchdog", "i6300esb": {"action": "poweroff"}}
        vmi["spec"]["domain"]["devices"]["watchdog"] = device

    vm = session.vm("watchdog", change=change)
    boot(result, vm)
    vm.console().send("echo x >/dev/watchdog\n")
    result.step("final phase", vm.final_phase, 120)
    end_after_final_phase(result, vm)
    return vm


@scenario(
    "a disk whose image does not exist",
    "condition Synchronized is False with the reason; the VMI can be deleted",
)
def missing_disk(session, result):
    vm = session.vm(
        "missing-disk",
        change=lambda vmi: objects.add_disk(
            vmi, "none", {"hostDisk": {"path": "/nowhere/disk.img", "type": "Disk"}}
        ),
    )
    result.step(
        "Synchronized False",
        lambda: vm.has_condition("Synchronized", 60, 0) and plain(vm.condition("Synchronized")["message"]),
    )
    time.sleep(3)
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


@scenario("UEFI, and the image has no firmware", "condition Synchronized is False; the VMI can be deleted")
def missing_firmware(session, result):
    def change(vmi):
        vmi["spec"]["domain"]["firmware"]["bootloader"] = {"efi": {"secureBoot": False}}
        vmi["spec"]["domain"]["features"]["smm"] = {"enabled": True}

    vm = session.vm("missing-firmware", change=change, ovmf="/nowhere")

    def refused():
        vm.wait(
            "Synchronized",
            lambda vmi: (
                any(c["type"] == "Synchronized" for c in vmi["status"].get("conditions", []))
                or phase(vmi) == "Failed"
            ),
            60,
            since=0,
        )
        return plain(vm.condition("Synchronized"))

    result.step("Synchronized False or a final phase", refused)
    time.sleep(4)
    result.record("phase", phase(vm.latest))
    end_by_deletion(result, vm)
    return vm


@scenario(
    "a disk without space: the guest is paused; then the claim grows",
    "condition Paused for an I/O error, with an event; the guest goes on by itself and has written all",
)
def disk_full(session, result):
    def change(vmi):
        objects.add_disk(
            vmi,
            "small",
            {"persistentVolumeClaim": {"claimName": "small"}},
            claim={
                "claimName": "small",
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "capacity": {"storage": "256Mi"},
                "filesystemOverhead": "0",
            },
        )

    vm = session.vm("disk-full", change=change, tmpfs_claims={"small": "24m"})
    boot(result, vm)
    mark = vm.recorder.mark()
    vm.shell("true")
    vm.console().send("dd if=/dev/zero of=/dev/vdb bs=1M count=64 oflag=direct; echo wri''tten\n")
    result.step(
        "condition Paused", lambda: vm.has_condition("Paused", 30, mark) and vm.condition("Paused")["reason"]
    )
    time.sleep(8)
    result.step("still Paused", lambda: bool(vm.condition("Paused")))
    subprocess.run(
        ["mount", "-o", "remount,size=400m", f"{vm.pod.folder}/volumes/kubernetes.io~local-volume/small"],
        check=True,
    )
    mark = vm.recorder.mark()
    result.step("goes on", vm.lacks_condition, "Paused", 60, mark)
    result.step("the guest has written", vm.console().expect, "written", 20)
    end_by_deletion(result, vm)
    return vm
