//! `spec.domain.firmware` and `spec.domain.chassis`: boot, ACPI tables, SMBIOS.

use super::Text;
use crate::api;

api! {
/// `firmware` of `DomainSpec`.
Firmware {
    "uuid" uuid: Text,
    "bootloader" bootloader: Option<Bootloader>,
    "serial" serial: Text,
    "kernelBoot" kernel_boot: Option<KernelBoot>,
    "acpi" acpi: Option<Acpi>,
}
/// `chassis` of `DomainSpec`.
Chassis {
    "manufacturer" manufacturer: Text,
    "version" version: Text,
    "serial" serial: Text,
    "asset" asset: Text,
    "sku" sku: Text,
}
/// `bootloader` of `Firmware`.
Bootloader {
    "bios" bios: Option<Bios>,
    "efi" efi: Option<Efi>,
}
/// `kernelBoot` of `Firmware`.
KernelBoot {
    "kernelArgs" kernel_args: Text,
    "container" container: Option<KernelBootContainer>,
}
/// `acpi` of `Firmware`.
Acpi {
    "slicNameRef" slic_name_ref: Text,
    "msdmNameRef" msdm_name_ref: Text,
}
/// `bios` of `Bootloader`.
Bios {
    "useSerial" use_serial: Option<bool>,
}
/// `efi` of `Bootloader`.
Efi {
    "secureBoot" secure_boot: Option<bool>,
    "persistent" persistent: Option<bool>,
}
/// `container` of `KernelBoot`.
KernelBootContainer {
    "image" image: Text,
    "imagePullSecret" image_pull_secret: Text,
    "imagePullPolicy" image_pull_policy: Text,
    "kernelPath" kernel_path: Text,
    "initrdPath" initrd_path: Text,
}
}
