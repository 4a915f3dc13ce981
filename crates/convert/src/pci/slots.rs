//! Which devices take a slot on a PCI bus of the guest.

use domain::address::{Address, AddressType};
use domain::devices::{Devices, InputBus};
use domain::disks::DiskBus;
use domain::host_devices::HostDeviceType;

/// The addresses of all devices that are on a PCI bus, or will be: those without an address of
/// another kind.
pub(crate) fn pci_addresses(devices: &mut Devices) -> impl Iterator<Item = &mut Option<Address>> {
    let interfaces = devices.interfaces.iter_mut().map(|it| &mut it.address);
    let host_devices = devices.host_devices.iter_mut();
    let host_devices = host_devices.filter(|device| device.r#type == HostDeviceType::Pci);
    let controllers = devices.controllers.iter_mut();
    let controllers = controllers.filter(|controller| !is_root(&controller.model));
    let disks = devices.disks.iter_mut();
    let disks = disks.filter(|disk| disk.target.bus == DiskBus::Virtio);
    let inputs = devices.inputs.iter_mut();
    let inputs = inputs.filter(|input| input.bus == InputBus::Virtio);
    let watchdogs = devices.watchdogs.iter_mut().map(|it| &mut it.address);
    let rng = devices.rng.iter_mut().map(|it| &mut it.address);
    let balloon = devices.ballooning.iter_mut().map(|it| &mut it.address);
    interfaces
        .chain(host_devices.map(|it| &mut it.address))
        .chain(controllers.map(|it| &mut it.address))
        .chain(disks.map(|it| &mut it.address))
        .chain(inputs.map(|it| &mut it.address))
        .chain(watchdogs)
        .chain(rng)
        .chain(balloon)
        .filter(|address| address.as_ref().is_none_or(may_be_pci))
}

/// Roots and expander buses are not devices on a bus.
fn is_root(model: &str) -> bool {
    matches!(model, "pci-root" | "pcie-root" | "pcie-expander-bus")
}

fn may_be_pci(address: &Address) -> bool {
    matches!(address.r#type, AddressType::Unset | AddressType::Pci)
}
