//! `<address>` and `<boot>`, which many devices have.
//!
//! libvirt: [device addresses](https://libvirt.org/formatdomain.html#device-addresses)
use super::vocabulary::vocabulary;
use super::xml::elements;

vocabulary! {
/// What kind of bus an address is on, and so which of its attributes count.
AddressType {
    Pci = "pci",
    Drive = "drive",
    Usb = "usb",
    Ccw = "ccw",
    VirtioSerial = "virtio-serial",
    Unassigned = "unassigned",
}
}

elements! {
/// `<address>`: where on its bus a device sits, or where on the host it is. Which attributes count
/// depends on `type`; see [`Address::pci`](crate::pci_address).
Address {
    attr? "type" "Type" r#type: AddressType,
    attr? "domain" "Domain" domain: String,
    attr? "bus" "Bus" bus: String,
    attr? "slot" "Slot" slot: String,
    attr? "function" "Function" function: String,
    attr? "controller" "Controller" controller: String,
    attr? "target" "Target" target: String,
    attr? "unit" "Unit" unit: String,
    attr? "uuid" "UUID" uuid: String,
    attr? "device" "Device" device: String,
    attr? "cssid" "CSSID" cssid: String,
    attr? "ssid" "SSID" ssid: String,
    attr? "devno" "DevNo" devno: String,
}
/// `<boot>`: the turn of the device in booting, from 1.
BootOrder {
    attr "order" "Order" order: u64,
}
}
