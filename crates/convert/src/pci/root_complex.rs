//! All PCI devices directly on the root complex, so that the guest sees no bridges.

use super::slots::pci_addresses;
use crate::error::refuse;
use crate::{ConvertError, DomainSpec, Input};
use domain::PciAddress;

/// `"true"` asks for it.
pub(crate) const ANNOTATION: &str = "kubevirt.io/placePCIDevicesOnRootComplex";

/// Slots that QEMU or libvirt want for themselves: the host bridge, VGA, the sound card of ICH9,
/// and its LPC bridge with SATA.
const RESERVED: [u8; 4] = [0x00, 0x01, 0x1b, 0x1f];
/// Slots of a bus.
const SLOTS: u8 = 0x20;

/// Gives each PCI device without an address the next free slot of bus 0.
pub(crate) fn root_complex(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    // With Grace GPUs the annotation was refused before.
    if input.annotation(ANNOTATION) != "true" || !input.arch.pcie_placement {
        return Ok(());
    }
    let mut slots = (0..SLOTS).filter(|slot| !RESERVED.contains(slot));
    for address in pci_addresses(&mut domain.devices) {
        if address
            .as_ref()
            .is_some_and(|address| !address.domain.is_empty())
        {
            continue;
        }
        let Some(slot) = slots.next() else {
            let free = usize::from(SLOTS) - RESERVED.len();
            refuse!(
                format!("metadata.annotations[{ANNOTATION}]"),
                "is \"true\", but the VMI has more PCI devices than the root complex has free slots, {free}"
            );
        };
        let placed = PciAddress {
            domain: 0,
            bus: 0,
            slot,
            function: 0,
        };
        *address = Some(placed.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use api::vmi::Vmi;
    use domain::disks::Disk;

    fn disk(bus: &str) -> Disk {
        let mut disk = Disk::default();
        disk.target.bus = bus.into();
        disk
    }

    fn place(domain: &mut DomainSpec) -> Result<(), ConvertError> {
        let vmi: Vmi = serde_json::from_str(&format!(
            r#"{{"metadata":{{"annotations":{{"{ANNOTATION}":"true"}}}}}}"#
        ))
        .unwrap();
        root_complex(&Input::new(&vmi, &Context::default()).unwrap(), domain)
    }

    fn slots(domain: &DomainSpec) -> Vec<&str> {
        domain
            .devices
            .disks
            .iter()
            .map(|disk| {
                disk.address
                    .as_ref()
                    .map_or("", |address| address.slot.as_str())
            })
            .collect()
    }

    #[test]
    fn reserved_slots_are_left_out_and_the_last_is_1e() {
        let mut domain = DomainSpec::default();
        domain.devices.disks = (0..28).map(|_| disk("virtio")).collect();
        place(&mut domain).unwrap();
        let slots = slots(&domain);
        assert_eq!(
            (slots[0], slots[24], slots[25], slots[27]),
            ("0x02", "0x1a", "0x1c", "0x1e")
        );
    }

    #[test]
    fn one_device_too_many_is_refused() {
        let mut domain = DomainSpec::default();
        domain.devices.disks = (0..29).map(|_| disk("virtio")).collect();
        assert!(
            place(&mut domain)
                .unwrap_err()
                .to_string()
                .contains("free slots")
        );
    }

    #[test]
    fn other_buses_and_explicit_addresses_stay() {
        let mut domain = DomainSpec::default();
        let mut placed = disk("virtio");
        placed.address = "0000:02:05.0".parse::<PciAddress>().ok().map(Into::into);
        domain.devices.disks = vec![disk("sata"), placed, disk("virtio")];
        place(&mut domain).unwrap();
        assert_eq!(slots(&domain), ["", "0x05", "0x02"]);
    }
}
