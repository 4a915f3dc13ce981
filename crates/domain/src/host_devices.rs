//! `<hostdev>`: host devices passed through.
//!
//! libvirt: [host device assignment](https://libvirt.org/formatdomain.html#host-device-assignment)
use super::address::{Address, BootOrder};
use super::alias::Alias;
use super::vocabulary::{OnOff, YesNo, vocabulary};
use super::xml::elements;

vocabulary! {
/// What kind of host device is passed through.
HostDeviceType {
    Pci = "pci",
    /// A mediated device, such as a vGPU.
    Mdev = "mdev",
    Usb = "usb",
}
}

elements! {
/// `<hostdev>`: a PCI, mediated or USB device of the host.
HostDevice {
    name "hostdev",
    child "source" "Source" source: HostDeviceSource,
    attr "type" "Type" r#type: HostDeviceType,
    child "boot" "BootOrder" boot_order: Option<BootOrder>,
    attr? "managed" "Managed" managed: YesNo,
    attr? "mode" "Mode" mode: String,
    attr? "model" "Model" model: String,
    child "address" "Address" address: Option<Address>,
    child "alias" "Alias" alias: Option<Alias>,
    attr? "display" "Display" display: OnOff,
    attr? "ramfb" "RamFB" ram_fb: OnOff,
    child "driver" "Driver" driver: Option<HostDevDriver>,
    child "acpi" "ACPI" acpi: Option<AcpiHostDev>,
}
/// `<source>`: its address on the host.
HostDeviceSource {
    child "address" "Address" address: Option<Address>,
}
/// `<driver>`.
HostDevDriver {
    attr? "iommufd" "Iommufd" iommufd: YesNo,
}
/// `<acpi>`: guest NUMA cells that are the device's memory.
AcpiHostDev {
    attr? "nodeset" "NodeSet" node_set: String,
}
}
