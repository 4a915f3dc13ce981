"""virt-api's and virt-controller's part of volumes that come and go while a VM runs."""

import time

from kit.wait import until


def attach(
    vm,
    name,
    pod,
    source,
    phase,
    disk=None,
    mode="Filesystem",
    access="ReadWriteOnce",
    status=None,
    timeout=30,
):
    """Adds a volume, and its disk if there is one; waits until virt-handler has brought its status to `phase`.

    `source`: the volume's source, as in the API; `status`: further fields of its status.
    """

    mark, start = vm.recorder.mark(), time.time()
    vm.edit(lambda vmi: specify(vmi, name, pod, source, disk, mode, access, status))

    def reached(vmi):
        volume = find(vmi, name)
        return volume.get("phase") == phase and (volume.get("target") or not disk)

    vm.wait(phase, reached, timeout, mark)
    volume = vm.volume(name)
    return {
        "target": volume["target"],
        "message": volume["message"],
        "phases": phases(vm, name),
        "seconds": round(time.time() - start, 1),
    }


def specify(vmi, name, pod, source, disk=None, mode="Filesystem", access="ReadWriteOnce", status=None):
    """As `attach` writes it to the VMI."""
    if disk:
        vmi["spec"]["domain"]["devices"]["disks"].append({"name": name, **disk})
    if "type" in source:
        vmi["spec"].setdefault("utilityVolumes", []).append({"name": name, **source})
    else:
        vmi["spec"]["volumes"].append({"name": name, **source})
    vmi["status"]["volumeStatus"].append(
        {
            "name": name,
            "target": "",
            "phase": "AttachedToNode",
            "reason": "SuccessfulCreate",
            "message": "Created hotplug attachment pod",
            "hotplugVolume": {"attachPodName": pod.name, "attachPodUID": pod.uid},
            "persistentVolumeClaimInfo": {
                "claimName": name,
                "accessModes": [access],
                "volumeMode": mode,
                "capacity": {"storage": "64Mi"},
            },
            **(status or {}),
        }
    )


def detach(vm, name, pod, timeout=40):
    """Takes the volume out of the spec; once virt-handler has unmounted it, its status and its attachment pod go.

    virt-handler reports the end of volumes that were Ready or MountedToPod; of others (a memory dump's) it only
    unmounts the file system.
    """

    def change(vmi):
        spec = vmi["spec"]
        for place in (
            spec["domain"]["devices"].get("disks", []),
            spec["volumes"],
            spec.get("utilityVolumes", []),
        ):
            place[:] = [each for each in place if each["name"] != name]
        status = find(vmi, name)  # virt-controller, while there is an attachment pod
        if status["phase"] not in ("Ready", "MountedToPod"):
            status["phase"] = "Detaching"

    def forget(vmi):
        vmi["status"]["volumeStatus"] = [v for v in vmi["status"]["volumeStatus"] if v["name"] != name]

    mark, start = vm.recorder.mark(), time.time()
    edited = vm.edit(change)
    if find(edited, name)["phase"] != "Detaching":
        vm.wait(
            "UnMountedFromPod", lambda vmi: find(vmi, name).get("phase") == "UnMountedFromPod", timeout, mark
        )
    until("the volume is unmounted in the pod", lambda: not vm.pod.has_hotplugged(name), timeout)
    out = {"phases": phases(vm, name), "seconds": round(time.time() - start, 1)}
    vm.edit(forget)
    pod.remove()
    return out


def find(vmi, name):
    return next((v for v in vmi["status"].get("volumeStatus", []) if v["name"] == name), {})


def phases(vm, name):
    """Phase and target of a volume, each change once."""
    out = []
    for _, _, vmi in list(vm.recorder.versions):
        volume = find(vmi, name)
        if volume:
            text = f"{volume.get('phase')} {volume.get('target', '')}".strip()
            if not out or out[-1] != text:
                out.append(text)
    return out
