//! `<numa>` and `<numatune>`: the guest gets the host's NUMA cells that its vCPUs run on.

use crate::error::refuse;
use std::collections::BTreeMap;

use super::cpu::cpu_list;
use super::memory::guest_memory;
use super::pinning::is_numa_passthrough;
use super::{ConvertError, DomainSpec, Input};
use api::vmi::{Quantity, Vmi};
use domain::cpu::{CpuTuneVcpuPin, MemNode, Numa, NumaCell, NumaTune, NumaTuneMemory};
use domain::memory::{HugePage, MemoryAllocation, NoSharePages};

const PASSTHROUGH: &str = "spec.domain.cpu.numa.guestMappingPassthrough";

/// Guest cells for the host cells with pinned vCPUs, in the host's order; memory in whole
/// hugepages, spread evenly.
pub(super) fn numa(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let vmi = input.vmi;
    let Some(cpu) = input.dedicated_cpu().filter(|cpu| is_numa_passthrough(cpu)) else {
        return Ok(());
    };
    let cells = match &input.ctx.topology {
        Some(topology) if !topology.numa_cells.is_empty() => &topology.numa_cells,
        _ => return Ok(()),
    };
    let pins = domain
        .cputune
        .as_ref()
        .map_or(&[][..], |tune| &tune.vcpu_pins);
    let vcpus = vcpus_by_cell(cells, pins)?;
    // Host cell and its vCPUs, in the host's order.
    let used: Vec<(u32, &[u32])> = cells
        .iter()
        .filter_map(|cell| Some((cell.id, vcpus.get(&cell.id)?.as_slice())))
        .collect();

    let page = hugepage_size(vmi)?;
    let shares = Shares::of(vmi, page, used.len())?;
    let backing = domain.memory_backing.get_or_insert_default();
    backing.allocation = Some(MemoryAllocation {
        mode: String::from("immediate"),
    });
    if cpu.realtime.is_some() {
        backing.no_share_pages = Some(NoSharePages {});
    }
    let pages = &mut backing.huge_pages.get_or_insert_default().huge_page;
    pages.extend((0..).zip(&used).map(|(cell_id, _): (u32, _)| HugePage {
        size: page.to_string(),
        unit: String::from("b"),
        node_set: cell_id.to_string(),
    }));
    domain.cpu.numa = Some(guest_cells(&used, &shares));
    domain.numa_tune = Some(memory_placement(&used));
    Ok(())
}

/// A guest cell for each host cell with its vCPUs.
// D-next-2 (docs/differences.md).
fn guest_cells(used: &[(u32, &[u32])], shares: &Shares) -> Numa {
    let cell = |(cell_id, (_, vcpus)): (u32, &(u32, &[u32]))| NumaCell {
        id: cell_id.to_string(),
        cpus: cpu_list(vcpus.iter().copied()),
        memory: Some(shares.bytes(cell_id)),
        unit: String::from("b"),
        ..NumaCell::default()
    };
    Numa {
        cells: (0..).zip(used).map(cell).collect(),
    }
}

/// `<memnode>`: the memory of each guest cell is taken from its host cell only.
fn memory_placement(used: &[(u32, &[u32])]) -> NumaTune {
    let mem_node = |(cell_id, (host, _)): (u32, &(u32, &[u32]))| MemNode {
        cell_id,
        mode: String::from("strict"),
        node_set: host.to_string(),
    };
    NumaTune {
        memory: NumaTuneMemory {
            mode: String::from("strict"),
            node_set: cpu_list(used.iter().map(|&(host, _)| host)),
        },
        mem_nodes: (0..).zip(used).map(mem_node).collect(),
    }
}

/// Host cell → the vCPUs pinned to its CPUs.
fn vcpus_by_cell(
    cells: &[super::context::NumaCell],
    pins: &[CpuTuneVcpuPin],
) -> Result<BTreeMap<u32, Vec<u32>>, ConvertError> {
    let cell_of: BTreeMap<u32, u32> = cells
        .iter()
        .flat_map(|cell| cell.cpus.iter().map(|cpu| (cpu.id, cell.id)))
        .collect();
    let mut vcpus = BTreeMap::<u32, Vec<u32>>::new();
    for pin in pins {
        let cell = pin
            .cpuset
            .parse()
            .ok()
            .and_then(|cpu: u32| cell_of.get(&cpu))
            .ok_or_else(|| {
                ConvertError::new(
                    PASSTHROUGH,
                    format!(
                        "vCPU {} is pinned to host CPU {}, which is not in a NUMA cell of the node",
                        pin.vcpu, pin.cpuset
                    ),
                )
            })?;
        vcpus.entry(*cell).or_default().push(pin.vcpu);
    }
    Ok(vcpus)
}

/// Size of a hugepage in bytes.
fn hugepage_size(vmi: &Vmi) -> Result<u64, ConvertError> {
    const FIELD: &str = "spec.domain.memory.hugepages.pageSize";
    let memory = vmi.spec.domain.memory.as_ref();
    let Some(hugepages) = memory.and_then(|memory| memory.hugepages.as_ref()) else {
        refuse!(
            PASSTHROUGH,
            "needs hugepages: set spec.domain.memory.hugepages"
        );
    };
    match Quantity(hugepages.page_size.clone()).bytes() {
        Ok(0) => refuse!(
            FIELD,
            "is {}; a page must not be empty, use a size such as 2Mi or 1Gi",
            hugepages.page_size
        ),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(ConvertError::new(FIELD, error)),
    }
}

/// Guest memory divided among cells in whole pages; the first cells get the rest.
#[derive(Debug)]
struct Shares {
    page: u64,
    pages_each: u64,
    larger: u64,
}

impl Shares {
    fn of(vmi: &Vmi, page: u64, cells: usize) -> Result<Self, ConvertError> {
        let guest = guest_memory(vmi);
        let field = guest.map_or("spec.domain.memory.guest", |size| size.field);
        let memory = guest.map_or(Ok(0), |size| size.bytes())?;
        let cells = cells.max(1) as u64;
        if memory / page < cells {
            refuse!(
                field,
                "{memory} bytes give less than one page of {page} bytes to each of {cells} NUMA cells"
            );
        }
        if !memory.is_multiple_of(page) {
            refuse!(
                field,
                "{memory} bytes are not a multiple of the page size, {page} bytes"
            );
        }
        let pages = memory / page;
        Ok(Self {
            page,
            pages_each: pages / cells,
            larger: pages % cells,
        })
    }

    /// Memory of a guest cell.
    fn bytes(&self, cell: u32) -> u64 {
        (self.pages_each + u64::from(u64::from(cell) < self.larger)) * self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(guest: &str, page: u64, cells: usize) -> Result<Vec<u64>, ConvertError> {
        let vmi = serde_json::from_str(&format!(
            r#"{{"spec":{{"domain":{{"memory":{{"guest":"{guest}"}}}}}}}}"#
        ))
        .unwrap();
        let shares = Shares::of(&vmi, page, cells)?;
        Ok((0..cells as u32)
            .map(|cell| shares.bytes(cell) / page)
            .collect())
    }

    #[test]
    fn the_remainder_goes_in_whole_pages_to_the_first_cells() {
        assert_eq!(shares("22Mi", 2 << 20, 4).unwrap(), [3, 3, 3, 2]);
        assert_eq!(shares("8Mi", 2 << 20, 2).unwrap(), [2, 2]);
    }

    #[test]
    fn each_cell_needs_a_page_and_no_page_is_broken() {
        assert!(
            shares("2Mi", 2 << 20, 2)
                .unwrap_err()
                .to_string()
                .contains("less than one page")
        );
        assert!(
            shares("5Mi", 2 << 20, 2)
                .unwrap_err()
                .to_string()
                .contains("not a multiple")
        );
    }
}
