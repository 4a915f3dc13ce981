//! `<controller>`: buses that other devices sit on.
//!
//! libvirt: [controllers](https://libvirt.org/formatdomain.html#controllers)
use super::address::Address;
use super::alias::Alias;
use super::vocabulary::{OnOff, vocabulary};
use super::xml::elements;

vocabulary! {
/// What a controller has behind it.
ControllerType {
    Pci = "pci",
    Usb = "usb",
    Scsi = "scsi",
    Sata = "sata",
    Ide = "ide",
    VirtioSerial = "virtio-serial",
}
}

elements! {
/// `<controller>`: a PCI bridge, a SCSI, USB or virtio-serial controller.
Controller {
    attr "type" "Type" r#type: ControllerType,
    attr "index" "Index" index: String,
    attr? "model" "Model" model: String,
    child "driver" "Driver" driver: Option<ControllerDriver>,
    child "alias" "Alias" alias: Option<Alias>,
    child "address" "Address" address: Option<Address>,
    child "pcihole64" "PCIHole64" pci_hole64: Option<PciHole64>,
    child "target" "Target" target: Option<ControllerTarget>,
}
/// `<driver>`: threads and queues of a SCSI controller.
ControllerDriver {
    attr? "iothread" "IOThread" iothread: Option<u64>,
    attr? "queues" "Queues" queues: Option<u64>,
    attr? "iommu" "IOMMU" iommu: OnOff,
}
/// `<pcihole64>`: address space for large PCI windows; on the root controller.
PciHole64 {
    text "Value" value: u64,
    /// `KiB` where it is absent.
    attr? "unit" "Unit" unit: String,
}
/// `<target>`: place of a PCI bridge.
ControllerTarget {
    attr? "busNr" "BusNr" bus_nr: Option<u32>,
    leaf? "node" "NUMANode" numa_node: Option<u32>,
}
}
