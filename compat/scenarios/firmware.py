"""VMs with firmware other than a BIOS, and with a TPM."""

from kit.normalize import status
from kit.registry import scenario
from kit.steps import boot, end_by_deletion


def uefi(vmi, secure_boot=False, **efi):
    vmi["spec"]["domain"]["firmware"]["bootloader"] = {"efi": {"secureBoot": secure_boot, **efi}}
    vmi["spec"]["domain"]["memory"]["guest"] = "512Mi"
    vmi["spec"]["domain"]["resources"]["requests"]["memory"] = "512Mi"
    if secure_boot:
        vmi["spec"]["domain"]["features"]["smm"] = {"enabled": True}


@scenario("UEFI", "Running, AgentConnected")
def efi(session, result):
    vm = session.vm("efi", change=uefi)
    boot(result, vm, agent_timeout=90)
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


@scenario("UEFI with Secure Boot, and a TPM", "Running; the guest sees Secure Boot and a TPM 2.0")
def secure_boot(session, result):
    def change(vmi):
        uefi(vmi, secure_boot=True)
        vmi["spec"]["domain"]["devices"]["tpm"] = {}

    vm = session.vm("secure-boot", change=change)
    boot(result, vm, agent_timeout=120)
    result.step("guest: Secure Boot", vm.shell, "dmesg | grep -ci 'secure boot enabled'")
    result.step("guest: TPM", vm.shell, "cat /sys/class/tpm/tpm0/tpm_version_major")
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm


@scenario(
    "UEFI variables and the TPM's state on the VM's backend storage",
    "Running; both are in the claim; the VMI ends as any other",
)
def persistent_state(session, result):
    def change(vmi):
        uefi(vmi, secure_boot=True, persistent=True)
        vmi["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
        vmi["status"]["volumeStatus"].append(
            {
                "name": "vm-state",
                "target": "",
                "persistentVolumeClaimInfo": {
                    "claimName": "persistent-state-for-persistent-state",
                    "accessModes": ["ReadWriteOnce"],
                    "volumeMode": "Filesystem",
                },
            }
        )

    vm = session.vm("persistent-state", change=change, state=("swtpm", "nvram"))
    boot(result, vm, agent_timeout=120)
    result.step("guest: TPM", vm.shell, "cat /sys/class/tpm/tpm0/tpm_version_major")
    result.step(
        "NVRAM in the claim",
        lambda: vm.pod.container.run(
            [
                "sh",
                "-c",
                "cd /var/run/kubevirt-private/libvirt/qemu; ls nvram; "
                "find swtpm -type f | sed 's,.*/,,' | grep -v -e log -e lock | sort",
            ]
        )["output"],
    )
    result.record("running_status", status(vm.latest))
    end_by_deletion(result, vm)
    return vm
