//! Free PCI ports for later: what is plugged into a running q35 machine needs a root port that is already there.
//!
//! libvirt makes one port for each device of a definition. So the definition is first made with placeholder
//! interfaces, and then made again from what libvirt has completed, without them: their ports stay. More ports, by
//! memory size, are added behind all that are in use, so that no device changes its address. This is the guest's PCI
//! topology, hence exactly the reference's. All edits are made in the text of the document: what sidecars have added
//! stays as it is.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::LauncherError;
use api::vmi::Vmi;
use convert::Arch;
use domain::DomainSpec;
use domain::devices::Address;

const ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
const INTERFACE_SLOTS: &str = "kubevirt.io/pci-interface-slot-count";
/// Interfaces, and placeholders for them, that a machine has at least.
const INTERFACES: usize = 4;
/// Of a root port; each takes a slot of bus 0, which has 32.
const HIGHEST_INDEX: u32 = 31;

/// What to make room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ports {
    /// Interfaces that are defined and taken out again.
    pub placeholders: usize,
    /// Root ports added at the end.
    pub extra: usize,
    /// Model of the placeholders.
    model: String,
}

impl Ports {
    /// Room for the VMI, of which `domain` is the converted form.
    pub fn of(vmi: &Vmi, domain: &DomainSpec) -> Result<Self, LauncherError> {
        let arch = Arch::named(&vmi.spec.architecture);
        let transitional = vmi.spec.domain.devices.use_virtio_transitional == Some(true);
        let mut ports = Self {
            placeholders: 0,
            extra: 0,
            model: arch.virtio_model(transitional).to_string(),
        };
        if !has_root_ports(vmi) {
            return Ok(ports);
        }
        let on_root_complex = vmi
            .metadata
            .annotations
            .get(ON_ROOT_COMPLEX)
            .is_some_and(|value| value == "true");
        let interfaces = vmi.spec.domain.devices.interfaces.len();
        ports.placeholders = match vmi.metadata.annotations.get(INTERFACE_SLOTS) {
            Some(value) => {
                let total: i64 = value.parse().map_err(|_| LauncherError::Annotation {
                    name: INTERFACE_SLOTS,
                    value: value.clone(),
                })?;
                usize::try_from(total)
                    .unwrap_or(0)
                    .saturating_sub(interfaces)
            }
            None if on_root_complex || interfaces == 0 => 0,
            None => INTERFACES.saturating_sub(interfaces),
        };
        if !on_root_complex {
            // The unit is always bytes here: it is our own conversion's.
            let large = domain.memory.value > 2 << 30;
            let (total, least) = if large { (16, 6) } else { (8, 3) };
            ports.extra = least
                .max(usize::saturating_sub(total, pci_devices(domain)))
                .saturating_sub(ports.placeholders);
        }
        Ok(ports)
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.placeholders == 0 && self.extra == 0
    }

    /// The document with the placeholders as its last devices.
    pub fn with_placeholders(&self, xml: &str) -> Result<String, LauncherError> {
        let mut devices = String::new();
        for index in 0..self.placeholders {
            devices += &format!(
                "<interface type=\"ethernet\"><target dev=\"placeholder-{index}\" managed=\"no\"/><model type=\"{}\"/></interface>\n",
                self.model
            );
        }
        let end = Devices::find(xml)?.end;
        Ok([&xml[..end], &devices, &xml[end..]].concat())
    }

    /// What libvirt made of [`Self::with_placeholders`], without the placeholders and with the extra ports.
    pub fn settled(&self, completed: &str) -> Result<String, LauncherError> {
        let devices = Devices::find(completed)?;
        let domain = DomainSpec::from_xml(completed).map_err(LauncherError::Xml)?;
        let mut xml = String::with_capacity(completed.len() + 64 * self.extra);
        let mut from = 0;
        for (range, interface) in devices.interfaces.iter().zip(&domain.devices.interfaces) {
            if interface
                .target
                .as_ref()
                .is_some_and(|target| target.device.starts_with("placeholder-"))
            {
                xml += &completed[from..range.start];
                from = range.end;
            }
        }
        xml += &completed[from..devices.end];
        let pci = domain
            .devices
            .controllers
            .iter()
            .filter(|controller| controller.r#type == "pci");
        let last = pci
            .filter_map(|controller| controller.index.parse::<u32>().ok())
            .max()
            .unwrap_or(0);
        for index in (last + 1..=HIGHEST_INDEX).take(self.extra) {
            xml +=
                &format!("<controller type=\"pci\" index=\"{index}\" model=\"pcie-root-port\"/>\n");
        }
        xml += &completed[devices.end..];
        Ok(xml)
    }
}

/// Machines with PCI Express: q35 and arm's virt, which are also the defaults.
fn has_root_ports(vmi: &Vmi) -> bool {
    let machine = vmi
        .spec
        .domain
        .machine
        .as_ref()
        .map(|machine| machine.r#type.as_str());
    matches!(vmi.spec.architecture.as_str(), "" | "amd64" | "arm64")
        && machine.is_none_or(|machine| machine.contains("q35") || machine.starts_with("virt"))
}

/// How many ports the devices of the converted domain will take.
fn pci_devices(domain: &DomainSpec) -> usize {
    let devices = &domain.devices;
    let on_pci = |address: &Option<Address>| {
        address
            .as_ref()
            .is_none_or(|address| matches!(address.r#type.as_str(), "" | "pci"))
    };
    let roots = ["pci-root", "pcie-root", "pcie-expander-bus"];
    devices
        .interfaces
        .iter()
        .filter(|device| on_pci(&device.address))
        .count()
        + devices
            .host_devices
            .iter()
            .filter(|device| device.r#type == "pci" && on_pci(&device.address))
            .count()
        + devices
            .controllers
            .iter()
            .filter(|device| !roots.contains(&device.model.as_str()) && on_pci(&device.address))
            .count()
        + devices
            .disks
            .iter()
            .filter(|device| device.target.bus == "virtio" && on_pci(&device.address))
            .count()
        + devices
            .inputs
            .iter()
            .filter(|device| device.bus == "virtio" && on_pci(&device.address))
            .count()
        + devices
            .watchdogs
            .iter()
            .filter(|device| on_pci(&device.address))
            .count()
        + devices
            .rng
            .iter()
            .filter(|device| on_pci(&device.address))
            .count()
        + devices
            .ballooning
            .iter()
            .filter(|device| on_pci(&device.address))
            .count()
}

/// Places in the text of a document.
#[derive(Debug, Default, PartialEq, Eq)]
struct Devices {
    /// Each `<interface>`.
    interfaces: Vec<Range<usize>>,
    /// Where `</devices>` begins.
    end: usize,
}

impl Devices {
    fn find(xml: &str) -> Result<Self, LauncherError> {
        let mut reader = Reader::from_str(xml);
        let mut found = Self::default();
        let (mut path, mut start) = (Vec::new(), 0);
        loop {
            let before = position(&reader);
            // What is no XML here is none for libvirt either, which says what is wrong with it.
            let event = reader.read_event().map_err(|_| LauncherError::NoDevices)?;
            let inside = path.len() == 2 && path[1] == "devices";
            match event {
                Event::Start(tag) => {
                    if inside {
                        start = before;
                    }
                    path.push(tag.name().as_ref().to_owned());
                }
                Event::Empty(tag) if inside && tag.name().as_ref() == "interface" => {
                    found.interfaces.push(before..position(&reader))
                }
                Event::End(tag) => {
                    path.pop();
                    match tag.name().as_ref() {
                        "interface" if path.len() == 2 && path[1] == "devices" => {
                            found.interfaces.push(start..position(&reader))
                        }
                        "devices" if path.len() == 1 => {
                            found.end = before;
                            return Ok(found);
                        }
                        _ => {}
                    }
                }
                Event::Eof => return Err(LauncherError::NoDevices),
                _ => {}
            }
        }
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api::vmi::interfaces::Interface;

    fn vmi(interfaces: usize) -> Vmi {
        let mut vmi = Vmi::default();
        vmi.spec.domain.devices.interfaces = vec![Interface::default(); interfaces];
        vmi
    }

    fn domain(bytes: u64, virtio_disks: usize) -> DomainSpec {
        let mut domain = DomainSpec::default();
        domain.memory.value = bytes;
        for _ in 0..virtio_disks {
            let mut disk = domain::disks::Disk::default();
            disk.target.bus = "virtio".into();
            domain.devices.disks.push(disk);
        }
        domain
    }

    fn counts(vmi: &Vmi, domain: &DomainSpec) -> (usize, usize) {
        let ports = Ports::of(vmi, domain).unwrap();
        (ports.placeholders, ports.extra)
    }

    #[test]
    fn a_machine_has_room_for_four_interfaces() {
        assert_eq!(counts(&vmi(1), &domain(1 << 30, 0)).0, 3);
        assert_eq!(counts(&vmi(4), &domain(1 << 30, 0)).0, 0);
        assert_eq!(counts(&vmi(9), &domain(1 << 30, 0)).0, 0);
        assert_eq!(counts(&vmi(0), &domain(1 << 30, 0)).0, 0);
    }

    #[test]
    fn free_ports_grow_with_memory_and_shrink_with_devices() {
        assert_eq!(counts(&vmi(0), &domain(1 << 30, 0)).1, 8);
        assert_eq!(counts(&vmi(0), &domain(1 << 30, 6)).1, 3);
        assert_eq!(counts(&vmi(0), &domain(2 << 30, 6)).1, 3);
        assert_eq!(counts(&vmi(0), &domain((2 << 30) + 1, 6)).1, 10);
        assert_eq!(counts(&vmi(0), &domain(8 << 30, 30)).1, 6);
        // Placeholders count as free.
        assert_eq!(counts(&vmi(1), &domain(1 << 30, 7)), (3, 0));
    }

    #[test]
    fn a_stored_slot_count_decides() {
        let mut vmi = vmi(2);
        vmi.metadata
            .annotations
            .insert(INTERFACE_SLOTS.into(), "7".into());
        assert_eq!(counts(&vmi, &domain(1 << 30, 0)).0, 5);
        vmi.metadata
            .annotations
            .insert(INTERFACE_SLOTS.into(), "1".into());
        assert_eq!(counts(&vmi, &domain(1 << 30, 0)).0, 0);
        vmi.metadata
            .annotations
            .insert(INTERFACE_SLOTS.into(), "many".into());
        let error = Ports::of(&vmi, &domain(1 << 30, 0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metadata.annotations[kubevirt.io/pci-interface-slot-count]: \"many\" is not a number"
        );
    }

    #[test]
    fn machines_without_root_ports_get_none() {
        let mut root_complex = vmi(1);
        root_complex
            .metadata
            .annotations
            .insert(ON_ROOT_COMPLEX.into(), "true".into());
        assert_eq!(counts(&root_complex, &domain(1 << 30, 0)), (0, 0));
        let mut mainframe = vmi(1);
        mainframe.spec.architecture = "s390x".into();
        assert_eq!(counts(&mainframe, &domain(1 << 30, 0)), (0, 0));
        let mut pc = vmi(1);
        pc.spec.domain.machine = Some(api::vmi::status::Machine {
            r#type: "pc-i440fx-9.0".into(),
        });
        assert_eq!(counts(&pc, &domain(1 << 30, 0)), (0, 0));
    }

    #[test]
    fn placeholders_come_last_and_go_without_a_trace() {
        let ports = Ports {
            placeholders: 2,
            extra: 2,
            model: "virtio-non-transitional".into(),
        };
        let xml = "<domain type='kvm' xmlns:x='urn:x'>\n  <name>a</name>\n  <metadata><devices/></metadata>\n  <devices>\n    <interface type='ethernet'><alias name='ua-default'/></interface>\n    <odd keep='me'/>\n  </devices>\n  <x:own>&lt;devices></x:own>\n</domain>";
        let with = ports.with_placeholders(xml).unwrap();
        let read = DomainSpec::from_xml(&with).unwrap();
        let targets: Vec<_> = read
            .devices
            .interfaces
            .iter()
            .map(|i| i.target.as_ref().map_or("", |t| t.device.as_str()))
            .collect();
        assert_eq!(targets, ["", "placeholder-0", "placeholder-1"]);
        // libvirt has added controllers meanwhile.
        let completed = with.replace("<odd", "<controller type='pci' index='0' model='pcie-root'/><controller type='pci' index='5'/><odd");
        let settled = ports.settled(&completed).unwrap();
        let read = DomainSpec::from_xml(&settled).unwrap();
        assert_eq!(read.devices.interfaces.len(), 1);
        let indexes: Vec<_> = read
            .devices
            .controllers
            .iter()
            .map(|controller| controller.index.as_str())
            .collect();
        assert_eq!(indexes, ["0", "5", "6", "7"]);
        assert!(
            settled.contains("<odd keep='me'/>") && settled.contains("<x:own>&lt;devices></x:own>"),
            "{settled}"
        );
    }

    #[test]
    fn bus_0_is_never_overfilled() {
        let ports = Ports {
            placeholders: 0,
            extra: 9,
            model: String::new(),
        };
        let settled = ports
            .settled("<domain><devices><controller type='pci' index='28'/></devices></domain>")
            .unwrap();
        assert_eq!(
            DomainSpec::from_xml(&settled)
                .unwrap()
                .devices
                .controllers
                .len(),
            4
        );
    }

    #[test]
    fn a_document_without_devices_is_refused() {
        let ports = Ports {
            placeholders: 1,
            extra: 0,
            model: String::new(),
        };
        for xml in [
            "",
            "<domain/>",
            "<domain><name>a</name></domain>",
            "<domain><devices>",
            "<domain><devices></domain>",
        ] {
            assert!(
                matches!(ports.with_placeholders(xml), Err(LauncherError::NoDevices)),
                "{xml}"
            );
        }
    }
}
