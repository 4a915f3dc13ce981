//! `<hostdev>`: host devices passed through.
//!
//! libvirt: [host device assignment](https://libvirt.org/formatdomain.html#host-device-assignment)

use super::Text;
use super::alias::Alias;
use super::devices::{Address, BootOrder};
use super::xml::elements;

elements! {
/// `<hostdev>`: a PCI, mediated or USB device of the host.
HostDevice {
    name "hostdev",
    child "source" "Source" source: HostDeviceSource,
    attr "type" "Type" r#type: Text,
    child "boot" "BootOrder" boot_order: Option<BootOrder>,
    attr? "managed" "Managed" managed: Text,
    attr? "mode" "Mode" mode: Text,
    attr? "model" "Model" model: Text,
    child "address" "Address" address: Option<Address>,
    child "alias" "Alias" alias: Option<Alias>,
    attr? "display" "Display" display: Text,
    attr? "ramfb" "RamFB" ram_fb: Text,
    child "driver" "Driver" driver: Option<HostDevDriver>,
    child "acpi" "ACPI" acpi: Option<AcpiHostDev>,
}
/// `<source>`: its address on the host.
HostDeviceSource {
    child "address" "Address" address: Option<Address>,
}
/// `<driver>`.
HostDevDriver {
    attr? "iommufd" "Iommufd" iommufd: Text,
}
/// `<acpi>`: guest NUMA cells that are the device's memory.
AcpiHostDev {
    attr? "nodeset" "NodeSet" node_set: Text,
}
}
