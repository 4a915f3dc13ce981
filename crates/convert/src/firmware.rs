//! `<os>`: EFI and BIOS, direct kernel boot, ACPI tables, machine type and boot menu.

use super::{ConvertError, DomainSpec, Input};
use crate::error::refuse;
use api::vmi::Vmi;
use api::vmi::firmware::{Acpi, Firmware};
use api::vmi::volumes::VolumeSource;
use domain::YesNo;
use domain::firmware::{
    AcpiTable, Bios, BootMenu, FirmwareFeature, FirmwareInfo, Loader, Nvram, Os, OsAcpi, Smbios,
};

/// How long the boot menu (`<bootmenu>`) waits, in milliseconds.
const BOOT_MENU_TIMEOUT: u64 = 10_000;

/// How the guest boots.
pub(super) fn os(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let vmi = input.vmi;
    let os = &mut domain.os;
    if let Some(firmware) = &vmi.spec.domain.firmware {
        bootloader(input, firmware, os);
        kernel_boot(input, firmware, os);
        if let Some(acpi) = &firmware.acpi {
            os.acpi = Some(acpi_tables(input, acpi)?);
        }
    }
    os.smbios = input.arch.smbios.then(|| Smbios {
        mode: String::from("sysinfo"),
    });
    if let Some(machine) = &vmi.spec.domain.machine {
        os.r#type.machine = machine.r#type.clone();
    }
    // A guest that starts paused (`startStrategy`) gets a boot menu, with time to reach it.
    if vmi.spec.start_strategy.as_deref() == Some("Paused") {
        os.boot_menu = Some(BootMenu {
            enable: YesNo::Yes,
            timeout: Some(BOOT_MENU_TIMEOUT),
        });
    }
    Ok(())
}

/// EFI, or `<bios>` with the serial console (`useSerial`).
fn bootloader(input: &Input<'_>, firmware: &Firmware, os: &mut Os) {
    let Some(bootloader) = &firmware.bootloader else {
        return;
    };
    if bootloader.efi.is_some() {
        efi(input, os);
    }
    if bootloader
        .bios
        .as_ref()
        .is_some_and(|bios| bios.use_serial == Some(true))
    {
        os.bios = Some(Bios {
            use_serial: YesNo::Yes,
        });
    }
}

/// The launcher of this VMI does not run as root (`runtimeUser`).
fn runs_as_nonroot(vmi: &Vmi) -> bool {
    vmi.status.runtime_user != 0 || vmi.metadata.annotations.contains_key("kubevirt.io/nonroot")
}

/// Firmware that libvirt chooses, or the images (`<loader>`, `<nvram>`) that were chosen for the
/// VMI. SEV-SNP and TDX guests have no persistent variables. `efi.persistent` changes nothing here:
/// with it virt-controller mounts a claim where `<nvram>` is.
fn efi(input: &Input<'_>, os: &mut Os) {
    let Some(chosen) = &input.ctx.efi_configuration else {
        return;
    };
    let spec = &input.vmi.spec;
    let nvram = || {
        let name = &input.vmi.metadata.name;
        input.paths.nvram(runs_as_nonroot(input.vmi), name)
    };
    if chosen.uses_firmware_auto_selection {
        let feature = |name| FirmwareFeature {
            enabled: YesNo::Yes,
            name: String::from(name),
        };
        os.firmware = String::from("efi");
        os.firmware_info = Some(FirmwareInfo {
            features: vec![feature("secure-boot"), feature("enrolled-keys")],
        });
        // arm64's firmware for secure boot keeps its variables in memory that libvirt manages, and
        // refuses <nvram>; elsewhere the file must keep its name and format.
        if spec.architecture != "arm64" {
            os.nvram = Some(Nvram {
                format: String::from("raw"),
                nvram: nvram(),
                ..Nvram::default()
            });
        }
        return;
    }
    let security = spec.domain.launch_security.as_ref();
    let stateless =
        security.is_some_and(|security| security.snp.is_some() || security.tdx.is_some());
    os.boot_loader = Some(Loader {
        read_only: YesNo::Yes,
        secure: chosen.secure_loader.into(),
        r#type: String::from(if stateless { "rom" } else { "pflash" }),
        path: chosen.efi_code.clone(),
    });
    os.nvram = (!stateless).then(|| Nvram {
        template: chosen.efi_vars.clone(),
        nvram: nvram(),
        ..Nvram::default()
    });
}

/// `kernelBoot` as `<kernel>`, `<initrd>` and `<cmdline>` (`kernelPath`, `initrdPath`,
/// `kernelArgs`); the last also without a container for the others.
fn kernel_boot(input: &Input<'_>, firmware: &Firmware, os: &mut Os) {
    let Some(boot) = &firmware.kernel_boot else {
        return;
    };
    if let Some(container) = &boot.container {
        let path = |artifact: &String| {
            if artifact.is_empty() {
                String::default()
            } else {
                input.paths.kernel_boot(artifact)
            }
        };
        os.kernel = path(&container.kernel_path);
        os.initrd = path(&container.initrd_path);
    }
    os.kernel_args = boot.kernel_args.clone();
}

/// Tables with Windows licences, each from a Secret volume.
fn acpi_tables(input: &Input<'_>, acpi: &Acpi) -> Result<OsAcpi, ConvertError> {
    let tables = [
        (
            "slic",
            "slic.bin",
            "spec.domain.firmware.acpi.slicNameRef",
            &acpi.slic_name_ref,
        ),
        (
            "msdm",
            "msdm.bin",
            "spec.domain.firmware.acpi.msdmNameRef",
            &acpi.msdm_name_ref,
        ),
    ];
    if tables.iter().all(|(.., volume)| volume.is_empty()) {
        refuse!(
            "spec.domain.firmware.acpi",
            "has no table; set slicNameRef, msdmNameRef or both"
        );
    }
    let mut table = Vec::new();
    for (kind, file, field, name) in tables.into_iter().filter(|(.., volume)| !volume.is_empty()) {
        match input
            .vmi
            .spec
            .volumes
            .iter()
            .find(|volume| volume.name == *name)
        {
            Some(volume) if matches!(volume.source(), Some(VolumeSource::Secret(_))) => {
                table.push(AcpiTable {
                    path: input.paths.secret_file(name, file),
                    r#type: String::from(kind),
                });
            }
            Some(_) => {
                refuse!(
                    field,
                    "volume {name:?} is not a Secret; ACPI tables come from Secrets only"
                );
            }
            None => {
                refuse!(field, "there is no volume {name:?} in spec.volumes");
            }
        }
    }
    Ok(OsAcpi { table })
}
