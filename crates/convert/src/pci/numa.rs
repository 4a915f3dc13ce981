//! Host devices next to the guest NUMA cell that stands for their host node.

use crate::error::refuse;
use std::collections::BTreeMap;

use super::expander::{self, Placement};
use super::guest_cell::GuestCells;
use super::host::Host;
use crate::pinning::is_numa_passthrough;
use crate::{ConvertError, DomainSpec, Input};
use domain::PciAddress;
use domain::address::Address;
use domain::host_devices::HostDeviceType;

/// Places PCI host devices of a VMI with dedicated CPUs where the cluster asks for it
/// (`PCINUMAAwareTopology`). A VMI whose NUMA cells are the host's is refused if one of them has no
/// place; any other is left as it is.
pub(crate) fn numa(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let ctx = input.ctx;
    let Some(cpu) = input.dedicated_cpu() else {
        return Ok(());
    };
    let grace = !ctx.grace_host_device_aliases.is_empty();
    if !ctx.pci_numa_aware_topology_enabled || !input.arch.pcie_placement || grace {
        return Ok(());
    }
    let wanted = placements(domain, Host::new(ctx), &BTreeMap::new());
    let mut problems = wanted.problems;
    if problems.is_empty() || !is_numa_passthrough(cpu) {
        match expander::place(&mut domain.devices, &wanted.placements) {
            Ok(()) => return Ok(()),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if is_numa_passthrough(cpu) {
        refuse!(
            "spec.domain.cpu.numa.guestMappingPassthrough",
            "host devices cannot be placed next to their NUMA cells: {}",
            problems.join("; ")
        );
    }
    Ok(())
}

/// Devices that can be placed, in the order of their addresses on the node, and why others cannot.
#[derive(Debug)]
pub struct Wanted {
    /// Devices and their cells.
    pub placements: Vec<Placement>,
    /// One text for each device or part of the domain that cannot be used.
    pub problems: Vec<String>,
}

/// Finds the guest cell of each PCI host device without an address; `known` has cells that are
/// known already, by the address on the node.
pub fn placements(
    domain: &DomainSpec,
    host: Host<'_>,
    known: &BTreeMap<PciAddress, u32>,
) -> Wanted {
    let mut problems = Vec::new();
    let devices = unplaced_devices(domain, &mut problems);
    let mut cells = (!devices.is_empty())
        .then(|| GuestCells::of(domain))
        .flatten();
    problems.extend(
        cells
            .as_mut()
            .map(|cells| std::mem::take(&mut cells.problems))
            .into_iter()
            .flatten(),
    );
    let mut placements = Vec::with_capacity(devices.len());
    for (address, device) in devices {
        let found = known.get(&address).copied().map_or_else(
            || {
                let cells = cells.as_ref().ok_or("the guest has no NUMA cells")?;
                cells.of_device(host, address)
            },
            Ok,
        );
        match found {
            Ok(cell) => placements.push(Placement {
                device,
                cell,
                iommu: None,
            }),
            Err(error) => problems.push(format!("device {address}: {error}")),
        }
    }
    Wanted {
        placements,
        problems,
    }
}

/// PCI host devices without an address in the guest: their address on the node, and their index.
fn unplaced_devices(
    domain: &DomainSpec,
    problems: &mut Vec<String>,
) -> BTreeMap<PciAddress, usize> {
    let mut devices = BTreeMap::new();
    for (index, device) in domain.devices.host_devices.iter().enumerate() {
        if device.r#type != HostDeviceType::Pci {
            continue;
        }
        let Some(address) = device.source.address.as_ref().and_then(Address::pci) else {
            problems.push("a host device has no PCI address on the node".to_owned());
            continue;
        };
        if device.address.as_ref().is_some_and(is_placed) {
            problems.push(format!(
                "device {address} has an address in the guest already"
            ));
            continue;
        }
        devices.insert(address, index);
    }
    devices
}

/// Whether any part of an address is given: then the device is wanted there.
fn is_placed(address: &Address) -> bool {
    let parts = [
        &address.domain,
        &address.bus,
        &address.slot,
        &address.function,
    ];
    parts.iter().any(|part| !part.is_empty())
}
