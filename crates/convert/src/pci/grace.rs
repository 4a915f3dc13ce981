//! NVIDIA Grace GPUs: each gets its own SMMU and expander bus, eight memory-only NUMA cells for its
//! partitions (Generic Initiators), the host's distances between all cells, and address space in
//! the 64-bit PCI hole. After NVIDIA's guide to I/O virtualisation on Grace.

use std::collections::{BTreeMap, BTreeSet};

use super::grace_host as sysfs;
use super::host::{Host, HostError};
use super::{expander, numa, root_complex};
use crate::{ConvertError, DomainSpec, Input};
use domain::address::Address;
use domain::controllers::{Controller, ControllerType, PciHole64};
use domain::cpu::{NumaCell, NumaCellDistances, NumaCellSibling};
use domain::devices::{IommuDevice, IommuDriver};
use domain::host_devices::{AcpiHostDev, HostDevDriver, HostDevice, HostDeviceType};
use domain::{OnOff, PciAddress, YesNo};

const ALIASES: &str = "graceHostDeviceAliases";

/// NUMA cells for the partitions of a GPU.
const CELLS_PER_GPU: u32 = 8;
/// Minimum size of the PCI hole for each GPU: four GPUs get 4 TiB.
const HOLE_PER_GPU: u64 = 512 << 30;
/// Address space for other devices, in KiB.
const HOLE_MARGIN_KIB: u64 = 1 << 20;
/// Largest hole, in KiB.
const MAX_HOLE_KIB: u64 = 16 << 30;
/// Distance of a cell to itself (ACPI, SLIT).
const LOCAL_DISTANCE: u64 = 10;

fn requested(input: &Input<'_>) -> bool {
    !input.ctx.grace_host_device_aliases.is_empty()
}

fn refuse<T>(reason: impl std::fmt::Display) -> Result<T, ConvertError> {
    Err(ConvertError::new(ALIASES, reason))
}

fn unreadable(error: HostError) -> ConvertError {
    ConvertError::new(ALIASES, error)
}

/// Refuses Grace GPUs where something that they need is missing.
pub(crate) fn requirements(input: &Input<'_>, _: &mut DomainSpec) -> Result<(), ConvertError> {
    if !requested(input) {
        return Ok(());
    }
    let ctx = input.ctx;
    let needs = [
        (
            ctx.grace_io_virtualization_enabled,
            "graceIOVirtualizationEnabled",
            "must be true for Grace GPUs",
        ),
        (
            ctx.pci_numa_aware_topology_enabled,
            "pciNUMAAwareTopologyEnabled",
            "must be true for Grace GPUs",
        ),
        (
            ctx.iommufd_enabled,
            "iommufdEnabled",
            "must be true for Grace GPUs: the launcher needs an IOMMU descriptor",
        ),
        (
            input.dedicated_cpu().is_some(),
            "spec.domain.cpu.dedicatedCpuPlacement",
            "must be true for Grace GPUs",
        ),
        (
            input.arch.pcie_placement,
            "architecture",
            "must have PCI Express for Grace GPUs",
        ),
        (
            input.annotation("kubevirt.io/disablePCIHole64") != "true",
            "metadata.annotations[kubevirt.io/disablePCIHole64]",
            "must not be \"true\": Grace GPUs need the 64-bit PCI hole",
        ),
        (
            input.annotation(root_complex::ANNOTATION) != "true",
            "metadata.annotations[kubevirt.io/placePCIDevicesOnRootComplex]",
            "must not be \"true\": Grace GPUs need their own PCI buses",
        ),
    ];
    needs
        .into_iter()
        .find(|(met, ..)| !met)
        .map_or(Ok(()), |(_, field, reason)| {
            Err(ConvertError::new(field, reason))
        })
}

/// A GPU among the host devices.
#[derive(Debug)]
struct Gpu {
    alias: String,
    /// Index of the host device.
    device: usize,
    /// Its address on the node.
    address: PciAddress,
}

/// Lays out NUMA cells, buses and SMMUs for the GPUs of the context.
pub(crate) fn grace(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if !requested(input) {
        return Ok(());
    }
    let host = Host::new(input.ctx);
    if !sysfs::has_smmu_v3(host).map_err(unreadable)? {
        return refuse("names Grace GPUs, but the node has no SMMUv3");
    }
    let gpus = gpus(domain, &input.ctx.grace_host_device_aliases, host)?;
    if gpus.is_empty() {
        return Ok(());
    }
    let mut nodes = host_nodes(domain)?;
    let cells = gpu_cells(&gpus, &nodes, host)?;
    let hole = hole_kib(&gpus, host)?;
    let partitions = partitions(&gpus, host)?;
    for (gpu, partitions) in gpus.iter().zip(partitions) {
        add_partition_cells(domain, gpu, &partitions, &mut nodes)?;
    }
    // Made before the GPUs' own buses, so that it stays the first of the new controllers.
    root_controller(domain)?;
    place(domain, host, &gpus, &cells)?;
    set_hole(root_controller(domain)?, hole)?;
    set_distances(domain, host, &nodes)
}

/// The host devices with the aliases, by alias; each must be a Grace GPU that is not yet placed.
fn gpus(domain: &DomainSpec, aliases: &[String], host: Host<'_>) -> Result<Vec<Gpu>, ConvertError> {
    let mut missing: BTreeSet<&String> = aliases.iter().filter(|alias| !alias.is_empty()).collect();
    let expected = missing.clone();
    let mut gpus = Vec::with_capacity(expected.len());
    for (index, device) in domain.devices.host_devices.iter().enumerate() {
        let Some(alias) = device
            .alias
            .as_ref()
            .map(|alias| &alias.name)
            .filter(|alias| expected.contains(alias))
        else {
            continue;
        };
        missing.remove(alias);
        gpus.push(Gpu {
            alias: alias.clone(),
            device: index,
            address: grace_address(device, alias, host)?,
        });
    }
    if let Some(alias) = missing.first() {
        return refuse(format!(
            "names {alias:?}, but no host device has that alias"
        ));
    }
    gpus.sort_by(|a, b| a.alias.cmp(&b.alias));
    Ok(gpus)
}

fn grace_address(
    device: &HostDevice,
    alias: &String,
    host: Host<'_>,
) -> Result<PciAddress, ConvertError> {
    if device.r#type != HostDeviceType::Pci {
        return refuse(format!(
            "names {alias:?}, which is a {:?} device; it must be a PCI device",
            device.r#type.as_str()
        ));
    }
    let Some(address) = device.source.address.as_ref().and_then(Address::pci) else {
        return refuse(format!(
            "names {alias:?}, which has no PCI address on the node"
        ));
    };
    if device.address.is_some() {
        return refuse(format!(
            "names {alias:?}, which has an address in the guest; Grace GPUs are placed by the launcher"
        ));
    }
    match sysfs::identity(host, address).map_err(unreadable)? {
        (_, _, true) => Ok(address),
        (vendor, id, false) => refuse(format!(
            "names {alias:?} at {address}, which is {vendor}:{id}, not a Grace GPU"
        )),
    }
}

fn cell_id(id: &String) -> Result<u32, ConvertError> {
    id.parse().or_else(|_| {
        refuse(format!(
            "needs NUMA cells, and {id:?} is not the number of one"
        ))
    })
}

/// Guest cell → host node with its memory. Each cell with CPUs or memory must have one, and no two
/// the same.
fn host_nodes(domain: &DomainSpec) -> Result<BTreeMap<u32, u32>, ConvertError> {
    let cells = domain.cpu.numa.as_ref().map_or(&[][..], |numa| &numa.cells);
    let mem_nodes = domain
        .numa_tune
        .as_ref()
        .map_or(&[][..], |tune| &tune.mem_nodes);
    if cells.is_empty() || mem_nodes.is_empty() {
        return refuse(
            "names Grace GPUs, which need the host's NUMA cells: set spec.domain.cpu.numa.guestMappingPassthrough",
        );
    }
    let mut nodes = BTreeMap::new();
    for mem_node in mem_nodes {
        let Ok(node) = mem_node.node_set.parse() else {
            return refuse(format!(
                "needs guest NUMA cell {} on one host node, not on {:?}",
                mem_node.cell_id, mem_node.node_set
            ));
        };
        nodes.insert(mem_node.cell_id, node);
    }
    for cell in cells {
        let needs_node = !cell.cpus.is_empty() || cell.memory != Some(0);
        if !nodes.contains_key(&cell_id(&cell.id)?) && needs_node {
            return refuse(format!(
                "needs guest NUMA cell {} bound to a host node",
                cell.id
            ));
        }
    }
    if nodes.values().collect::<BTreeSet<_>>().len() < nodes.len() {
        return refuse("needs guest NUMA cells on different host nodes");
    }
    Ok(nodes)
}

/// The guest cell on the host node of each GPU.
fn gpu_cells(
    gpus: &[Gpu],
    nodes: &BTreeMap<u32, u32>,
    host: Host<'_>,
) -> Result<Vec<u32>, ConvertError> {
    let cell = |gpu: &Gpu| {
        let node = sysfs::numa_node(host, gpu.address).map_err(unreadable)?;
        let cell = nodes
            .iter()
            .find(|&(_, &host_node)| i64::from(host_node) == node);
        cell.map_or_else(
            || {
                refuse(format!(
                    "names {:?} on host NUMA node {node}, where no guest NUMA cell is",
                    gpu.alias
                ))
            },
            |(&cell, _)| Ok(cell),
        )
    };
    gpus.iter().map(cell).collect()
}

/// Size of the PCI hole in KiB: the GPUs' BARs and some margin, rounded up to a power of 2.
fn hole_kib(gpus: &[Gpu], host: Host<'_>) -> Result<u64, ConvertError> {
    let mut bytes = 0_u64;
    for gpu in gpus {
        let bars = sysfs::bar_bytes(host, gpu.address).map_err(unreadable)?;
        if bars == 0 {
            return refuse(format!(
                "names {:?} at {}, which has no 64-bit prefetchable BAR",
                gpu.alias, gpu.address
            ));
        }
        bytes = bytes.saturating_add(bars.max(HOLE_PER_GPU));
    }
    let kib = (bytes.div_ceil(1024) + HOLE_MARGIN_KIB).next_power_of_two();
    if kib > MAX_HOLE_KIB {
        return refuse(format!(
            "names GPUs that need a PCI hole of {kib} KiB; at most {MAX_HOLE_KIB} KiB are possible"
        ));
    }
    Ok(kib)
}

/// The host's Generic Initiator nodes of each GPU: those that sysfs links to it, or, where it has
/// no links at all, the first ones in order.
fn partitions(gpus: &[Gpu], host: Host<'_>) -> Result<Vec<Vec<u32>>, ConvertError> {
    let per_gpu = CELLS_PER_GPU as usize;
    let all = sysfs::initiators(host).map_err(unreadable)?;
    let linked: Vec<Vec<u32>> = gpus
        .iter()
        .map(|gpu| sysfs::initiators_of(host, &all, gpu.address))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if linked.iter().all(Vec::is_empty) {
        let (found, needed) = (all.len(), gpus.len() * per_gpu);
        if found < needed {
            return refuse(format!(
                "names {} Grace GPUs, which need {needed} Generic Initiator nodes; the node has {found}",
                gpus.len()
            ));
        }
        return Ok(all
            .chunks(per_gpu)
            .take(gpus.len())
            .map(<[u32]>::to_vec)
            .collect());
    }
    let mut owners = BTreeMap::new();
    for (gpu, nodes) in gpus.iter().zip(&linked) {
        if nodes.len() != per_gpu {
            return refuse(format!(
                "names {:?}, which has {} Generic Initiator nodes instead of {per_gpu}",
                gpu.alias,
                nodes.len()
            ));
        }
        for node in nodes {
            if let Some(other) = owners.insert(*node, &gpu.alias) {
                return refuse(format!(
                    "names {other:?} and {:?}, which share Generic Initiator node {node}",
                    gpu.alias
                ));
            }
        }
    }
    Ok(linked)
}

/// Guest cells without memory and CPUs that stand for the GPU's partitions.
fn add_partition_cells(
    domain: &mut DomainSpec,
    gpu: &Gpu,
    partitions: &[u32],
    nodes: &mut BTreeMap<u32, u32>,
) -> Result<(), ConvertError> {
    let cells = &mut domain.cpu.numa.get_or_insert_default().cells;
    let mut last = 0;
    for cell in &*cells {
        last = last.max(cell_id(&cell.id)?);
    }
    let first = last.saturating_add(1);
    for (id, &node) in (first..).zip(partitions) {
        nodes.insert(id, node);
        cells.push(NumaCell {
            id: id.to_string(),
            memory: Some(0),
            unit: String::from("KiB"),
            ..NumaCell::default()
        });
    }
    if let Some(device) = domain.devices.host_devices.get_mut(gpu.device) {
        device.driver = Some(HostDevDriver {
            iommufd: YesNo::Yes,
        });
        device.acpi = Some(AcpiHostDev {
            node_set: format!("{first}-{}", first.saturating_add(CELLS_PER_GPU - 1)),
        });
    }
    Ok(())
}

/// The SMMU of a GPU. Sizes are those of Grace Blackwell and Vera Rubin, which cannot be read on
/// the node.
fn smmu() -> IommuDevice {
    IommuDevice {
        model: String::from("smmuv3"),
        driver: Some(IommuDriver {
            accel: OnOff::On,
            ats: OnOff::On,
            ril: OnOff::Off,
            ssid_size: String::from("20"),
            oas: String::from("48"),
            ..IommuDriver::default()
        }),
    }
}

/// All host devices next to their cells; other devices than GPUs where that is possible.
fn place(
    domain: &mut DomainSpec,
    host: Host<'_>,
    gpus: &[Gpu],
    cells: &[u32],
) -> Result<(), ConvertError> {
    let known = gpus
        .iter()
        .zip(cells)
        .map(|(gpu, &cell)| (gpu.address, cell))
        .collect();
    let mut placements = numa::placements(domain, host, &known).placements;
    for placement in &mut placements {
        if gpus.iter().any(|gpu| gpu.device == placement.device) {
            placement.iommu = Some(smmu());
        }
    }
    expander::place(&mut domain.devices, &placements).map_err(ConvertError::of(ALIASES))
}

/// The root of the PCI buses, made if there is none.
fn root_controller(domain: &mut DomainSpec) -> Result<&mut Controller, ConvertError> {
    let controllers = &mut domain.devices.controllers;
    let is_pci = |controller: &Controller| controller.r#type == ControllerType::Pci;
    let found = controllers
        .iter()
        .position(|controller| is_pci(controller) && controller.model == "pcie-root");
    if found.is_none() {
        if controllers
            .iter()
            .any(|controller| is_pci(controller) && controller.index == "0")
        {
            return refuse("names Grace GPUs, which need pcie-root as PCI controller 0");
        }
        let root = Controller {
            r#type: ControllerType::Pci,
            index: String::from("0"),
            model: String::from("pcie-root"),
            ..Controller::default()
        };
        controllers.push(root);
    }
    let at = found.unwrap_or(controllers.len() - 1);
    match controllers.get_mut(at) {
        Some(root) if root.index.is_empty() || root.index == "0" => {
            root.index = String::from("0");
            Ok(root)
        }
        _ => refuse("names Grace GPUs, which need pcie-root as PCI controller 0"),
    }
}

fn set_hole(root: &mut Controller, kib: u64) -> Result<(), ConvertError> {
    if root.pci_hole64.as_ref().is_some_and(|hole| hole.value == 0) {
        return refuse("names Grace GPUs, which need the 64-bit PCI hole that is turned off");
    }
    root.pci_hole64 = Some(PciHole64 {
        value: kib,
        unit: String::from("KiB"),
    });
    Ok(())
}

/// The host's distances between the nodes that the cells stand for. Partitions may be as near to
/// each other as to themselves, which a guest would refuse: they are one step further there.
fn set_distances(
    domain: &mut DomainSpec,
    host: Host<'_>,
    nodes: &BTreeMap<u32, u32>,
) -> Result<(), ConvertError> {
    for cell in domain.cpu.numa.iter_mut().flat_map(|numa| &mut numa.cells) {
        let id = cell_id(&cell.id)?;
        let Some(node) = nodes.get(&id) else { continue };
        let distances = sysfs::distances(host, *node).map_err(unreadable)?;
        let sibling = |(&other, other_node): (&u32, &u32)| {
            let Some(&distance) = distances.get(other_node) else {
                return refuse(format!(
                    "needs the distance from host NUMA node {node} to {other_node}, which the node does not report"
                ));
            };
            let value = if other != id && distance == LOCAL_DISTANCE {
                LOCAL_DISTANCE + 1
            } else {
                distance
            };
            Ok(NumaCellSibling {
                id: other.to_string(),
                value,
            })
        };
        cell.distances = Some(NumaCellDistances {
            siblings: nodes.iter().map(sibling).collect::<Result<_, _>>()?,
        });
    }
    Ok(())
}
