//! `<os>`: firmware and boot.
//!
//! libvirt: [operating system
//! booting](https://libvirt.org/formatdomain.html#operating-system-booting)
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<os>`.
Os {
    attr? "firmware" "Firmware" firmware: String,
    child "firmware" "FirmwareInfo" firmware_info: Option<FirmwareInfo>,
    child "type" "Type" r#type: OsType,
    child "acpi" "ACPI" acpi: Option<OsAcpi>,
    child "smbios" "SMBios" smbios: Option<Smbios>,
    child "boot" "BootOrder" boot_order: Vec<Boot>,
    child "bootmenu" "BootMenu" boot_menu: Option<BootMenu>,
    child "bios" "BIOS" bios: Option<Bios>,
    child "loader" "BootLoader" boot_loader: Option<Loader>,
    child "nvram" "NVRam" nvram: Option<Nvram>,
    leaf? "kernel" "Kernel" kernel: String,
    leaf? "initrd" "Initrd" initrd: String,
    leaf? "cmdline" "KernelArgs" kernel_args: String,
}
/// `<firmware>`: features by which libvirt chooses the firmware.
FirmwareInfo {
    child "feature" "Features" features: Vec<FirmwareFeature>,
}
/// `<feature>`: a feature that the firmware must or must not have.
FirmwareFeature {
    attr "enabled" "Enabled" enabled: YesNo,
    attr "name" "Name" name: String,
}
/// `<type>`: architecture and machine.
OsType {
    text "OS" os: String,
    attr? "arch" "Arch" arch: String,
    attr? "machine" "Machine" machine: String,
}
/// `<acpi>`: ACPI tables for the guest.
OsAcpi {
    child "table" "Table" table: Vec<AcpiTable>,
}
/// `<table>`: a file that holds a table.
AcpiTable {
    text "Path" path: String,
    attr? "type" "Type" r#type: String,
}
/// `<smbios>`: where SMBIOS gets its entries from.
Smbios {
    attr "mode" "Mode" mode: String,
}
/// `<nvram>`: the firmware's variables.
Nvram {
    attr? "template" "Template" template: String,
    attr? "format" "Format" format: String,
    text "NVRam" nvram: String,
}
/// `<boot>`: a kind of device to boot from.
Boot {
    attr "dev" "Dev" dev: String,
}
/// `<bootmenu>`: whether the user may choose, and for how long.
BootMenu {
    attr "enable" "Enable" enable: YesNo,
    /// In milliseconds.
    attr? "timeout" "Timeout" timeout: Option<u64>,
}
/// `<loader>`: the firmware's code.
Loader {
    attr? "readonly" "ReadOnly" read_only: YesNo,
    attr? "secure" "Secure" secure: YesNo,
    attr? "type" "Type" r#type: String,
    text "Path" path: String,
}
/// `<bios>`: SeaBIOS on the serial port.
Bios {
    attr? "useserial" "UseSerial" use_serial: YesNo,
}
}
