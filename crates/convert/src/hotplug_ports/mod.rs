//! Free hotplug slots, as `pcie-root-port` controllers: a device can be plugged into a running q35
//! machine only where a root port is free.
//!
//! libvirt makes one root port for each device of a definition. So the domain is defined twice:
//!
//! ```text
//! domain ──► with placeholder interfaces ──► (libvirt defines it, adds a root port for each device)
//!                                                        │
//!  (libvirt defines it again) ◄── root ports at the end ◄── placeholders removed, their ports stay
//! ```
//!
//! Further root ports come behind all that are in use, so that no device changes its address. This
//! is the guest's PCI topology, which must not change when a VM moves between the reference and
//! this launcher: all numbers are the reference's.

use super::pci::{ROOT_COMPLEX_ANNOTATION, pci_addresses};
use super::{Arch, ConvertError};
use api::vmi::Vmi;
use domain::DomainSpec;
use domain::xml::ReadError;
use domain::xml::tree::Element;

/// The number of placeholders and interfaces together, as virt-handler stored it at the first boot.
const SLOT_COUNT_ANNOTATION: &str = "kubevirt.io/pci-interface-slot-count";
/// A PCI domain has 256 buses. Bus 0 is the root, and each root port has its own bus behind it.
const MAX_ROOT_PORTS: usize = 255;
/// Placeholders and interfaces of a VMI without that annotation.
const DEFAULT_SLOTS: usize = 4;
/// The highest index of a root port that is added here: bus 0 has 32 slots.
const MAX_PORT_INDEX: u32 = 31;
/// Guest memory in bytes above which a machine has the larger number of ports.
const LARGE_MEMORY: u64 = 2 << 30;
/// An interface is a placeholder if its tap device begins with this.
const PLACEHOLDER: &str = "placeholder-";

/// Why the ports of a domain cannot be planned or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HotplugPortsError {
    /// The annotation holds no usable number.
    #[error(transparent)]
    Annotation(#[from] ConvertError),
    /// The document cannot be read.
    #[error("the domain XML cannot be read")]
    Xml(#[from] ReadError),
    /// There is nothing to add interfaces and controllers to.
    #[error("the domain XML has no <devices> element that hotplug ports could be added to")]
    NoDevices,
}

/// Which ports a domain gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotplugPorts {
    /// Interfaces that are defined and removed again; at most 255.
    placeholders: usize,
    /// Root ports added behind all others.
    extra: usize,
    /// Model of the placeholders.
    model: String,
}

impl HotplugPorts {
    /// The ports for the VMI, of which `domain` is the converted form.
    ///
    /// # Errors
    /// When the annotation `kubevirt.io/pci-interface-slot-count` is not a number, or is larger
    /// than the number of root ports that a machine can have.
    pub fn plan(vmi: &Vmi, domain: &DomainSpec) -> Result<Self, HotplugPortsError> {
        let arch = Arch::named(&vmi.spec.architecture);
        let transitional = vmi.spec.domain.devices.use_virtio_transitional == Some(true);
        let mut ports = Self {
            placeholders: 0,
            extra: 0,
            model: arch.virtio_model(transitional).to_string(),
        };
        if has_pcie_hotplug(vmi) {
            ports.placeholders = placeholders(vmi)?;
            if !is_on_root_complex(vmi) {
                ports.extra = free_ports(domain).saturating_sub(ports.placeholders);
            }
        }
        Ok(ports)
    }

    /// Whether the domain is defined as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placeholders == 0 && self.extra == 0
    }

    /// The document with the placeholders as its last devices.
    ///
    /// # Errors
    /// When the document cannot be read or has no `<devices>`.
    pub fn with_placeholders(&self, xml: &str) -> Result<String, HotplugPortsError> {
        let mut domain = Element::parse(xml)?;
        let devices = devices(&mut domain)?;
        for index in 0..self.placeholders {
            let target = Element::new("target")
                .with_attribute("dev", format!("{PLACEHOLDER}{index}"))
                .with_attribute("managed", "no");
            let interface = Element::new("interface")
                .with_attribute("type", "ethernet")
                .with_child(target)
                .with_child(Element::new("model").with_attribute("type", &self.model));
            devices.push(interface);
        }
        Ok(domain.to_xml())
    }

    /// What libvirt made of [`Self::with_placeholders`], without the placeholders and with the
    /// extra root ports.
    ///
    /// # Errors
    /// When the document cannot be read or has no `<devices>`.
    // D-conv-5, D-next-1 (docs/differences.md).
    pub fn with_root_ports(&self, completed: &str) -> Result<String, HotplugPortsError> {
        let mut domain = Element::parse(completed)?;
        let devices = devices(&mut domain)?;
        devices.retain_children(|device| !is_placeholder(device));
        let next = last_pci_index(devices).saturating_add(1);
        for index in (next..=MAX_PORT_INDEX).take(self.extra) {
            let port = Element::new("controller")
                .with_attribute("type", "pci")
                .with_attribute("index", index.to_string())
                .with_attribute("model", "pcie-root-port");
            devices.push(port);
        }
        Ok(domain.to_xml())
    }
}

/// Machines with PCI Express: q35 and Arm's virt, which are also the defaults.
fn has_pcie_hotplug(vmi: &Vmi) -> bool {
    let machine = vmi.spec.domain.machine.as_ref();
    let machine = machine.map(|machine| machine.r#type.as_str());
    matches!(vmi.spec.architecture.as_str(), "" | "amd64" | "arm64")
        && machine.is_none_or(|machine| machine.contains("q35") || machine.starts_with("virt"))
}

fn is_on_root_complex(vmi: &Vmi) -> bool {
    let annotation = vmi.metadata.annotations.get(ROOT_COMPLEX_ANNOTATION);
    annotation.is_some_and(|value| value == "true")
}

// D-conv-4 (docs/differences.md).
fn placeholders(vmi: &Vmi) -> Result<usize, ConvertError> {
    let interfaces = vmi.spec.domain.devices.interfaces.len();
    let Some(stored) = vmi.metadata.annotations.get(SLOT_COUNT_ANNOTATION) else {
        let none = is_on_root_complex(vmi) || interfaces == 0;
        return Ok(if none {
            0
        } else {
            DEFAULT_SLOTS.saturating_sub(interfaces)
        });
    };
    let refuse = |reason: String| {
        ConvertError::new(
            format!("metadata.annotations[{SLOT_COUNT_ANNOTATION}]"),
            reason,
        )
    };
    let total: i64 = stored
        .parse()
        .map_err(|_| refuse(format!("{stored:?} is not a number")))?;
    let total = usize::try_from(total.max(0)).unwrap_or(usize::MAX);
    if total > MAX_ROOT_PORTS {
        return Err(refuse(format!(
            "{stored:?} interface slots are too many; a machine has at most {MAX_ROOT_PORTS} PCIe root ports"
        )));
    }
    Ok(total.saturating_sub(interfaces))
}

/// How many ports must be free: 8 less those in use, but at least 3; with much memory 16, and 6.
fn free_ports(domain: &DomainSpec) -> usize {
    // The unit is always bytes here: the domain is our own conversion's.
    let (total, least): (usize, usize) = if domain.memory.value > LARGE_MEMORY {
        (16, 6)
    } else {
        (8, 3)
    };
    // Counting takes the devices to be changed, as placing them does; this happens once in a start.
    let in_use = pci_addresses(&mut domain.devices.clone()).count();
    total.saturating_sub(in_use).max(least)
}

fn devices(domain: &mut Element) -> Result<&mut Element, HotplugPortsError> {
    domain
        .child_mut("devices")
        .ok_or(HotplugPortsError::NoDevices)
}

fn is_placeholder(device: &Element) -> bool {
    let target = device.child("target");
    device.name == "interface"
        && target
            .and_then(|target| target.attribute("dev"))
            .is_some_and(|dev| dev.starts_with(PLACEHOLDER))
}

fn last_pci_index(devices: &Element) -> u32 {
    devices
        .children()
        .filter(|device| device.name == "controller" && device.attribute("type") == Some("pci"))
        .filter_map(|controller| controller.attribute("index")?.parse().ok())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
