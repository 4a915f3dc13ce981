//! NVIDIA Grace GPUs in the node's sysfs.

use std::collections::BTreeMap;

use super::host::{Host, HostError, Kind};
use domain::PciAddress;

const DEVICES: &str = "/sys/bus/pci/devices";
const NODES: &str = "/sys/devices/system/node";

/// PCI vendor, and devices of it that are Grace GPUs.
const NVIDIA: &str = "10DE";
const GRACE_GPUS: [&str; 3] = ["2342", "2348", "2941"];

/// `IORESOURCE_MEM` of Linux.
const MEMORY: u64 = 0x200;
/// Type bits of a memory BAR: 64 bits wide and prefetchable (PCI specification, base address
/// registers).
const BAR_TYPE: u64 = 0xf;
const BAR_64_PREFETCH: u64 = 0xc;

/// How deep below a NUMA node the links to its devices are (`accessN/initiators/…`).
pub const NODE_LINK_DEPTH: u32 = 2;
/// Directories of a NUMA node without such links.
pub const NODE_DIRS_WITHOUT_LINKS: [&str; 4] = ["hugepages", "memory_failure", "power", "x86"];

/// Whether the node has an Arm SMMUv3.
pub fn has_smmu_v3(host: Host<'_>) -> Result<bool, HostError> {
    const IOMMUS: &str = "/sys/class/iommu";
    let is_smmu = |name: &str| name.contains("arm-smmu-v3");
    let entries = host.entries(IOMMUS)?;
    Ok(entries.iter().any(|(name, _)| {
        is_smmu(name)
            || host
                .link(&format!("{IOMMUS}/{name}"))
                .is_some_and(|target| is_smmu(target))
    }))
}

/// Vendor and device of a PCI device in upper-case hexadecimal, and whether it is a Grace GPU.
pub fn identity(host: Host<'_>, device: PciAddress) -> Result<(String, String, bool), HostError> {
    let id = |file| -> Result<String, HostError> {
        let id = host
            .read(&format!("{DEVICES}/{device}/{file}"))?
            .to_uppercase();
        Ok(id.strip_prefix("0X").map(str::to_owned).unwrap_or(id))
    };
    let (vendor, device) = (id("vendor")?, id("device")?);
    let is_grace = vendor == NVIDIA && GRACE_GPUS.contains(&device.as_str());
    Ok((vendor, device, is_grace))
}

/// NUMA node of a PCI device; -1 when it has none.
pub fn numa_node(host: Host<'_>, device: PciAddress) -> Result<i64, HostError> {
    host.number(&format!("{DEVICES}/{device}/numa_node"))
}

/// Bytes of the device's 64-bit prefetchable BARs.
pub fn bar_bytes(host: Host<'_>, device: PciAddress) -> Result<u64, HostError> {
    let path = format!("{DEVICES}/{device}/resource");
    let mut total = 0_u64;
    for line in host.read(&path)?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [start, end, flags] = fields[..] else {
            continue;
        };
        let number = |field: &str| {
            u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).map_err(|_| {
                HostError::Content {
                    path: path.clone(),
                    content: line.into(),
                    expected: "start, end and flags in hexadecimal",
                }
            })
        };
        let (start, end, flags) = (number(start)?, number(end)?, number(flags)?);
        let used = start != 0 && start <= end;
        if used && flags & MEMORY != 0 && flags & BAR_TYPE == BAR_64_PREFETCH {
            total = total.saturating_add((end - start).saturating_add(1));
        }
    }
    Ok(total)
}

/// NUMA nodes that are generic initiators: those that the kernel lists, or, on a kernel that does
/// not, those without memory and CPUs.
pub fn initiators(host: Host<'_>) -> Result<Vec<u32>, HostError> {
    let path = format!("{NODES}/has_generic_initiator");
    let mut nodes = match host.read(&path) {
        Ok("") => Vec::new(),
        Ok(_) => host.list(&path)?,
        Err(HostError::Missing(_)) => {
            let mut nodes = online(host)?;
            let mut error = None;
            nodes
                .retain(|&node| is_bare(host, node).unwrap_or_else(|e| error.replace(e).is_some()));
            error.map_or(Ok(nodes), Err)?
        }
        Err(e) => return Err(e),
    };
    nodes.sort_unstable();
    Ok(nodes)
}

fn online(host: Host<'_>) -> Result<Vec<u32>, HostError> {
    let mut nodes = host.list(&format!("{NODES}/online"))?;
    nodes.sort_unstable();
    Ok(nodes)
}

/// A NUMA node without memory and CPUs.
fn is_bare(host: Host<'_>, node: u32) -> Result<bool, HostError> {
    let meminfo = host.read(&format!("{NODES}/node{node}/meminfo"))?;
    let total = meminfo
        .lines()
        .rev()
        .find_map(|line| line.split_once("MemTotal:"));
    if total.and_then(|(_, amount)| amount.split_whitespace().next()) != Some("0") {
        return Ok(false);
    }
    Ok(matches!(
        host.read(&format!("{NODES}/node{node}/cpulist"))?,
        "" | "none"
    ))
}

/// The generic initiators among `nodes` that sysfs links to the device.
pub fn initiators_of(
    host: Host<'_>,
    nodes: &[u32],
    device: PciAddress,
) -> Result<Vec<u32>, HostError> {
    let path = format!("{DEVICES}/{device}");
    let device = format!("{device}");
    let mut linked = Vec::new();
    for &node in nodes {
        let resolved = host
            .resolve(&path)
            .ok_or_else(|| HostError::Missing(path.clone()))?;
        if links_to(
            host,
            &format!("{NODES}/node{node}"),
            &resolved,
            &device,
            NODE_LINK_DEPTH,
        )? {
            linked.push(node);
        }
    }
    Ok(linked)
}

/// Whether a directory or one below it has an entry for the device, or a link to it.
fn links_to(
    host: Host<'_>,
    dir: &str,
    resolved: &String,
    device: &str,
    depth: u32,
) -> Result<bool, HostError> {
    let names_device = |path: &str| path.split('/').any(|part| part == device);
    for (name, kind) in host.entries(dir)? {
        let path = format!("{dir}/{name}");
        let found = name == device
            || match kind {
                Kind::File => false,
                Kind::Directory => {
                    depth > 0
                        && !NODE_DIRS_WITHOUT_LINKS.contains(&name)
                        && links_to(host, &path, resolved, device, depth - 1)?
                }
                Kind::Link => {
                    host.link(&path).is_some_and(|target| names_device(target))
                        || host
                            .resolve(&path)
                            .is_some_and(|target| target == *resolved || names_device(&target))
                }
            };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Distances of a NUMA node to all that are online.
pub fn distances(host: Host<'_>, node: u32) -> Result<BTreeMap<u32, u64>, HostError> {
    let nodes = online(host)?;
    let path = format!("{NODES}/node{node}/distance");
    let content = host.read(&path)?;
    let damaged = |_| HostError::Content {
        path: path.clone(),
        content: content.into(),
        expected: "a list of distances",
    };
    nodes
        .into_iter()
        .zip(content.split_whitespace())
        .map(|(to, distance)| Ok((to, distance.parse().map_err(damaged)?)))
        .collect()
}
