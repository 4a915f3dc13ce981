//! PCI Express topology with an expander bus (QEMU's `pxb-pcie`) for each guest NUMA cell, so that
//! the guest knows which of its CPUs are near a device:
//!
//! ```text
//! pcie-expander-bus (one a cell, knows the cell) ── pcie-root-port (one a device) ── device
//! ```
//!
//! Bus numbers of expander buses count down from 255, and leave numbers free for the ports behind
//! each; controller indices count up from the last one that is used. The two must not meet.

use domain::address::{Address, AddressType};
use domain::controllers::{Controller, ControllerTarget, ControllerType};
use domain::devices::{Devices, IommuDevice};
use std::collections::BTreeMap;

/// Buses of a PCI domain, less one.
const LAST_BUS: u32 = 255;

/// A host device to place: its index in `<devices>`, and the guest cell it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Index of the host device.
    pub device: usize,
    /// Guest NUMA cell.
    pub cell: u32,
    /// An IOMMU for this device alone; the device then has its own expander bus.
    pub iommu: Option<IommuDevice>,
}

/// Puts devices behind expander buses; `placements` in the order of their host addresses. On an
/// error the devices are as they were.
///
/// # Errors
/// When there are not enough bus numbers.
pub fn place(devices: &mut Devices, placements: &[Placement]) -> Result<(), String> {
    let too_many = || {
        let devices = placements.len();
        format!("{devices} host devices need more PCI buses than the {LAST_BUS} there are")
    };
    let mut layout = Layout {
        next_index: last_index(&devices.controllers).saturating_add(1),
        controllers: 0,
        lowest_bus: LAST_BUS,
    };
    let mut by_cell = BTreeMap::<u32, Vec<&Placement>>::new();
    for placement in placements {
        by_cell.entry(placement.cell).or_default().push(placement);
    }
    let mut isolated = Vec::new();
    let mut shared = Vec::new();
    for (cell, members) in by_cell {
        let (alone, together): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|placement| placement.iommu.is_some());
        for placement in alone {
            isolated.push(layout.branch(cell, vec![placement]).ok_or_else(too_many)?);
        }
        if !together.is_empty() {
            shared.push(layout.branch(cell, together).ok_or_else(too_many)?);
        }
    }
    for branch in isolated.into_iter().chain(shared) {
        branch.apply(devices);
    }
    Ok(())
}

fn last_index(controllers: &[Controller]) -> u32 {
    controllers
        .iter()
        .filter_map(|controller| controller.index.parse().ok())
        .max()
        .unwrap_or(0)
}

/// Bus numbers and controller indices in use so far.
struct Layout {
    next_index: u32,
    /// Controllers made here.
    controllers: u32,
    /// Bus number of the last expander bus.
    lowest_bus: u32,
}

/// An expander bus, its ports, and the devices behind them, in this order.
struct Branch<'p> {
    expander: Controller,
    ports: Vec<(Controller, &'p Placement)>,
}

impl Layout {
    fn controller(&mut self, model: &'static str) -> Controller {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        self.controllers += 1;
        Controller {
            r#type: ControllerType::Pci,
            index: index.to_string(),
            model: String::from(model),
            ..Controller::default()
        }
    }

    fn branch<'p>(&mut self, cell: u32, members: Vec<&'p Placement>) -> Option<Branch<'p>> {
        let mut expander = self.controller("pcie-expander-bus");
        let mut ports = Vec::with_capacity(members.len());
        for (placement, slot) in members.into_iter().zip(0u32..) {
            if self.next_index >= self.lowest_bus {
                return None;
            }
            let mut port = self.controller("pcie-root-port");
            port.address = Some(pci_address(&expander.index, format!("{slot:#04x}")));
            ports.push((port, placement));
        }
        self.lowest_bus = LAST_BUS - self.controllers + 1;
        expander.target = Some(ControllerTarget {
            bus_nr: Some(self.lowest_bus),
            numa_node: Some(cell),
        });
        Some(Branch { expander, ports })
    }
}

impl Branch<'_> {
    fn apply(self, devices: &mut Devices) {
        for (port, placement) in &self.ports {
            if let Some(device) = devices.host_devices.get_mut(placement.device) {
                device.address = Some(pci_address(&port.index, String::from("0x00")));
            }
            if let Some(mut iommu) = placement.iommu.clone() {
                iommu.driver.get_or_insert_default().pci_bus = self.expander.index.clone();
                devices.iommu.push(iommu);
            }
        }
        devices.controllers.push(self.expander);
        devices
            .controllers
            .extend(self.ports.into_iter().map(|(port, _)| port));
    }
}

/// The bus of a controller is its index, in decimal.
fn pci_address(bus: &str, slot: String) -> Address {
    Address {
        r#type: AddressType::Pci,
        domain: String::from("0x0000"),
        bus: bus.to_owned(),
        slot,
        function: String::from("0x0"),
        ..Address::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::host_devices::HostDevice;

    fn devices(count: usize) -> Devices {
        let root = Controller {
            r#type: ControllerType::Pci,
            index: "0".into(),
            model: "pcie-root".into(),
            ..Controller::default()
        };
        Devices {
            host_devices: vec![HostDevice::default(); count],
            controllers: vec![root],
            ..Devices::default()
        }
    }

    fn in_cells(cells: &[u32]) -> Vec<Placement> {
        cells
            .iter()
            .enumerate()
            .map(|(device, &cell)| Placement {
                device,
                cell,
                iommu: None,
            })
            .collect()
    }

    /// `index=busNr@cell` of expander buses, `index<bus.slot` of ports.
    fn controllers(devices: &Devices) -> Vec<String> {
        let shown = |c: &Controller| match (&c.target, &c.address) {
            (Some(t), _) => format!("{}={}@{}", c.index, t.bus_nr.unwrap(), t.numa_node.unwrap()),
            (_, Some(a)) => format!("{}<{}.{}", c.index, a.bus, a.slot),
            _ => c.index.to_string(),
        };
        devices.controllers.iter().map(shown).collect()
    }

    #[test]
    fn bus_numbers_count_down_cumulatively() {
        let mut devices = devices(3);
        place(&mut devices, &in_cells(&[1, 0, 1])).unwrap();
        assert_eq!(
            controllers(&devices),
            [
                "0", "1=254@0", "2<1.0x00", "3=251@1", "4<3.0x00", "5<3.0x01"
            ]
        );
        let buses: Vec<_> = devices
            .host_devices
            .iter()
            .map(|device| device.address.as_ref().unwrap().bus.as_str())
            .collect();
        assert_eq!(buses, ["4", "2", "5"]);
    }

    #[test]
    fn a_device_with_an_iommu_has_a_bus_of_its_own() {
        let mut devices = devices(2);
        let mut placements = in_cells(&[0, 0]);
        placements[1].iommu = Some(IommuDevice::default());
        place(&mut devices, &placements).unwrap();
        assert_eq!(
            controllers(&devices),
            ["0", "1=254@0", "2<1.0x00", "3=252@0", "4<3.0x00"]
        );
        assert_eq!(devices.iommu[0].driver.as_ref().unwrap().pci_bus, "1");
    }

    #[test]
    fn indices_and_bus_numbers_must_not_meet() {
        let mut enough = devices(126);
        place(&mut enough, &in_cells(&[0; 126])).unwrap();
        let mut too_many = devices(300);
        let refused = place(&mut too_many, &in_cells(&[0; 300])).unwrap_err();
        assert!(
            refused.starts_with("300 host devices need more"),
            "{refused}"
        );
        assert_eq!(controllers(&too_many), ["0"]);
    }
}
