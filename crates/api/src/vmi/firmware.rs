//! `spec.domain.firmware` and `spec.domain.chassis`: boot, ACPI tables, SMBIOS.
use crate::api;

api! {
/// `firmware` of `DomainSpec`.
Firmware {
    "uuid" uuid: String,
    "bootloader" bootloader: Option<Bootloader>,
    "serial" serial: String,
    "kernelBoot" kernel_boot: Option<KernelBoot>,
    "acpi" acpi: Option<Acpi>,
}
/// `chassis` of `DomainSpec`.
Chassis {
    "manufacturer" manufacturer: String,
    "version" version: String,
    "serial" serial: String,
    "asset" asset: String,
    "sku" sku: String,
}
/// `bootloader` of `Firmware`.
Bootloader {
    "bios" bios: Option<Bios>,
    "efi" efi: Option<Efi>,
}
/// `kernelBoot` of `Firmware`.
KernelBoot {
    "kernelArgs" kernel_args: String,
    "container" container: Option<KernelBootContainer>,
}
/// `acpi` of `Firmware`.
Acpi {
    "slicNameRef" slic_name_ref: String,
    "msdmNameRef" msdm_name_ref: String,
}
/// `bios` of `Bootloader`.
Bios {
    "useSerial" use_serial: Option<bool>,
}
/// `efi` of `Bootloader`.
Efi {
    "secureBoot" secure_boot: Option<bool>,
}
/// `container` of `KernelBoot`.
KernelBootContainer {
    "image" image: String,
    "kernelPath" kernel_path: String,
    "initrdPath" initrd_path: String,
}
}
