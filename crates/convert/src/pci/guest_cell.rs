//! Which guest NUMA cell a host device belongs to: its memory is on the device's host
//! node, else the one with a vCPU that runs there.

use std::collections::BTreeMap;
use std::error::Error;

use super::host::Host;
use crate::cpu::parse_list;
use domain::cpu::{NumaCell, NumaTune};
use domain::{DomainSpec, PciAddress};

/// The ways from a host node to a guest cell.
#[derive(Debug)]
pub struct GuestCells {
    /// Host node → guest cell with its memory, where there is exactly one.
    by_memory: BTreeMap<u32, u32>,
    /// Host CPU → vCPU pinned to it.
    vcpus: BTreeMap<u32, u32>,
    /// vCPU → guest cell.
    cells: BTreeMap<u32, u32>,
    /// Parts of the domain that could not be used, and why.
    pub problems: Vec<String>,
}

impl GuestCells {
    /// The cells of a domain; `None` when it has no NUMA topology.
    #[must_use]
    pub fn of(domain: &DomainSpec) -> Option<Self> {
        let numa = domain.cpu.numa.as_ref()?;
        let mut problems = Vec::new();
        let by_memory = domain
            .numa_tune
            .as_ref()
            .map_or_else(BTreeMap::new, |tune| {
                by_memory(&numa.cells, tune, &mut problems)
            });
        let pins = domain
            .cputune
            .as_ref()
            .map_or(&[][..], |tune| &tune.vcpu_pins);
        let vcpus: BTreeMap<u32, u32> = pins
            .iter()
            .flat_map(|pin| {
                parse_list(&pin.cpuset)
                    .into_iter()
                    .flatten()
                    .map(|cpu| (cpu, pin.vcpu))
            })
            .collect();
        let mut cells = BTreeMap::new();
        for cell in &numa.cells {
            match (cell.id.parse::<u32>(), parse_list(&cell.cpus)) {
                (Ok(id), Some(vcpus)) => cells.extend(vcpus.into_iter().map(|vcpu| (vcpu, id))),
                _ => problems.push(format!(
                    "guest NUMA cell {:?} has the CPUs {:?}, which is not a list of CPUs",
                    cell.id, cell.cpus
                )),
            }
        }
        Some(Self {
            by_memory,
            vcpus,
            cells,
            problems,
        })
    }

    /// The guest cell of the device with that address on the node.
    ///
    /// # Errors
    /// When nothing of the guest is on the device's host node, or that node is not known.
    pub fn of_device(&self, host: Host<'_>, device: PciAddress) -> Result<u32, Box<dyn Error>> {
        let node = host.number(&format!("/sys/bus/pci/devices/{device}/numa_node"))?;
        let node = u32::try_from(node)
            .map_err(|_| "the node does not say on which of its NUMA nodes it is")?;
        if let Some(&cell) = self.by_memory.get(&node) {
            return Ok(cell);
        }
        let cpus = host.list(&format!("/sys/bus/node/devices/node{node}/cpulist"))?;
        let cell = cpus
            .iter()
            .find_map(|cpu| self.cells.get(self.vcpus.get(cpu)?).copied());
        cell.ok_or_else(|| {
            format!("no guest NUMA cell has memory or vCPUs on host NUMA node {node}").into()
        })
    }
}

/// Host node → guest cell by `<memnode>`. A host node with the memory of two cells is ambiguous.
fn by_memory(
    cells: &[NumaCell],
    tune: &NumaTune,
    problems: &mut Vec<String>,
) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::<u32, Option<u32>>::new();
    for mem_node in &tune.mem_nodes {
        let known = cells
            .iter()
            .any(|cell| cell.id.parse() == Ok(mem_node.cell_id));
        let Some(hosts) = parse_list(&mem_node.node_set).filter(|_| known) else {
            problems.push(format!(
                "memory of guest NUMA cell {} is bound to {:?}, which cannot be used",
                mem_node.cell_id, mem_node.node_set
            ));
            continue;
        };
        for host in hosts {
            let cell = nodes.entry(host).or_insert(Some(mem_node.cell_id));
            if *cell != Some(mem_node.cell_id) {
                *cell = None;
                problems.push(format!(
                    "host NUMA node {host} has the memory of more than one guest NUMA cell"
                ));
            }
        }
    }
    nodes
        .into_iter()
        .filter_map(|(host, cell)| Some((host, cell?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    const PINNED: &str = "<vcpupin vcpu='0' cpuset='4'/><vcpupin vcpu='1' cpuset='8'/>";
    const CELLS: &str = "<cell id='0' cpus='0'/><cell id='1' cpus='1'/>";

    fn cell(mem_nodes: &str, node: &str) -> Result<u32, String> {
        let domain = DomainSpec::from_xml(&format!(
            "<domain><cputune>{PINNED}</cputune><numatune>{mem_nodes}</numatune><cpu><numa>{CELLS}</numa></cpu></domain>"
        ));
        let ctx = Context {
            host_files: [
                ("/sys/bus/pci/devices/0000:81:00.0/numa_node", node),
                ("/sys/bus/node/devices/node1/cpulist", "6-8"),
            ]
            .map(|(path, content)| (path.into(), content.into()))
            .into(),
            ..Context::default()
        };
        GuestCells::of(&domain.unwrap())
            .unwrap()
            .of_device(Host::new(&ctx), "0000:81:00.0".parse().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn memory_decides_before_vcpus() {
        assert_eq!(cell("<memnode cellid='0' nodeset='1'/>", "1"), Ok(0));
        assert_eq!(cell("", "1"), Ok(1));
    }

    #[test]
    fn a_host_node_with_memory_of_two_cells_is_decided_by_vcpus() {
        assert_eq!(
            cell(
                "<memnode cellid='0' nodeset='1'/><memnode cellid='1' nodeset='1'/>",
                "1"
            ),
            Ok(1)
        );
    }

    #[test]
    fn a_device_without_a_node_has_no_cell() {
        let unknown = "the node does not say on which of its NUMA nodes it is";
        assert_eq!(cell("", "-1"), Err(unknown.to_owned()));
        let missing = "/sys/bus/node/devices/node0/cpulist does not exist on the node";
        assert_eq!(cell("", "0"), Err(missing.to_owned()));
    }
}
