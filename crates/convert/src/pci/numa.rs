//! Host devices next to the guest NUMA cell that stands for their host node.

use std::collections::BTreeMap;

use super::expander::{self, Placement};
use super::guest_cell::GuestCells;
use super::host::Host;
use crate::pinning::is_numa_passthrough;
use crate::{ConvertError, Draft, Input};
use domain::devices::Address;
use domain::host_devices::HostDeviceType;
use domain::{DomainSpec, PciAddress};

/// Places PCI host devices of a VMI with dedicated CPUs where the cluster asks for it. A VMI whose
/// NUMA cells are the host's is refused if one of them has no place; any other is left as it is.
pub(crate) fn numa(input: &Input<'_>, draft: &mut Draft) -> Result<(), ConvertError> {
    let ctx = input.ctx;
    let Some(cpu) = input
        .vmi
        .spec
        .domain
        .cpu
        .as_ref()
        .filter(|cpu| cpu.dedicated_cpu_placement)
    else {
        return Ok(());
    };
    let grace = !ctx.grace_host_device_aliases.is_empty();
    if !ctx.pci_numa_aware_topology_enabled || !input.arch.pcie_placement || grace {
        return Ok(());
    }
    let wanted = placements(&draft.domain, Host::new(ctx), &BTreeMap::new());
    let mut complaints = wanted.complaints;
    if complaints.is_empty() || !is_numa_passthrough(cpu) {
        match expander::place(&mut draft.domain.devices, &wanted.placements) {
            Ok(()) => return Ok(()),
            Err(e) => complaints.push(e.to_string()),
        }
    }
    if is_numa_passthrough(cpu) {
        let reason = format!(
            "host devices can't be placed next to their NUMA cells: {}",
            complaints.join("; ")
        );
        return Err(ConvertError::new(
            "spec.domain.cpu.numa.guestMappingPassthrough",
            reason,
        ));
    }
    Ok(())
}

/// Devices that can be placed, in the order of their host addresses, and what stands in the way of
/// the others.
#[derive(Debug)]
pub struct Wanted {
    /// Devices and their cells.
    pub placements: Vec<Placement>,
    /// One text for each device or mapping that can't be used.
    pub complaints: Vec<String>,
}

/// Looks for the guest cell of each PCI host device without an address; `known` are cells known
/// otherwise, by host address.
pub fn placements(
    domain: &DomainSpec,
    host: Host<'_>,
    known: &BTreeMap<PciAddress, u32>,
) -> Wanted {
    let mut complaints = Vec::new();
    let mut devices = BTreeMap::new();
    for (index, device) in domain
        .devices
        .host_devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.r#type == HostDeviceType::Pci)
    {
        let Some(address) = device.source.address.as_ref().and_then(Address::pci) else {
            complaints.push("a host device has no PCI address on the node".to_owned());
            continue;
        };
        if device.address.as_ref().is_some_and(is_placed) {
            complaints.push(format!(
                "device {address} has an address in the guest already"
            ));
            continue;
        }
        devices.insert(address, index);
    }
    let mut cells = (!devices.is_empty())
        .then(|| GuestCells::of(domain))
        .flatten();
    complaints.extend(
        cells
            .as_mut()
            .map(|cells| std::mem::take(&mut cells.complaints))
            .into_iter()
            .flatten(),
    );
    let mut placements = Vec::with_capacity(devices.len());
    for (address, device) in devices {
        let found = known.get(&address).copied().map_or_else(
            || {
                cells
                    .as_ref()
                    .ok_or_else(|| "the guest has no NUMA cells".to_owned())?
                    .of_device(host, address)
            },
            Ok,
        );
        match found {
            Ok(cell) => placements.push(Placement {
                device,
                cell,
                iommu: None,
            }),
            Err(reason) => complaints.push(format!("device {address}: {reason}")),
        }
    }
    Wanted {
        placements,
        complaints,
    }
}

/// Whether any part of an address is given: whoever gave it wants the device there.
fn is_placed(address: &Address) -> bool {
    let parts = [
        &address.domain,
        &address.bus,
        &address.slot,
        &address.function,
    ];
    parts.iter().any(|part| !part.is_empty())
}
