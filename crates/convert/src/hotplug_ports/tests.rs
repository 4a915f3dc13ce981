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
    let ports = HotplugPorts::plan(vmi, domain).unwrap();
    (ports.placeholders, ports.extra)
}

#[test]
fn a_machine_has_four_interface_slots() {
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
        .insert(SLOT_COUNT_ANNOTATION.into(), "7".into());
    assert_eq!(counts(&vmi, &domain(1 << 30, 0)).0, 5);
    vmi.metadata
        .annotations
        .insert(SLOT_COUNT_ANNOTATION.into(), "1".into());
    assert_eq!(counts(&vmi, &domain(1 << 30, 0)).0, 0);
    vmi.metadata
        .annotations
        .insert(SLOT_COUNT_ANNOTATION.into(), "many".into());
    let error = HotplugPorts::plan(&vmi, &domain(1 << 30, 0)).unwrap_err();
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
        .insert(ROOT_COMPLEX_ANNOTATION.into(), "true".into());
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
fn placeholders_come_last_and_are_removed_without_a_trace() {
    let ports = HotplugPorts {
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
    let defined = ports.with_root_ports(&completed).unwrap();
    let read = DomainSpec::from_xml(&defined).unwrap();
    assert_eq!(read.devices.interfaces.len(), 1);
    let indexes: Vec<_> = read
        .devices
        .controllers
        .iter()
        .map(|controller| controller.index.as_str())
        .collect();
    assert_eq!(indexes, ["0", "5", "6", "7"]);
    assert!(
        defined.contains("<odd keep=\"me\"></odd>")
            && defined.contains("<x:own>&lt;devices&gt;</x:own>"),
        "{defined}"
    );
}

#[test]
fn bus_0_is_never_overfilled() {
    let ports = HotplugPorts {
        placeholders: 0,
        extra: 9,
        model: String::new(),
    };
    let defined = ports
        .with_root_ports("<domain><devices><controller type='pci' index='28'/></devices></domain>")
        .unwrap();
    assert_eq!(
        DomainSpec::from_xml(&defined)
            .unwrap()
            .devices
            .controllers
            .len(),
        4
    );
}

#[test]
fn a_document_without_devices_is_refused() {
    let ports = HotplugPorts {
        placeholders: 1,
        extra: 0,
        model: String::new(),
    };
    for xml in ["<domain/>", "<domain><name>a</name></domain>"] {
        let refused = ports.with_placeholders(xml);
        assert!(
            matches!(refused, Err(HotplugPortsError::NoDevices)),
            "{xml}"
        );
    }
    for xml in ["", "<domain><devices>", "<domain><devices></domain>"] {
        let refused = ports.with_placeholders(xml);
        assert!(matches!(refused, Err(HotplugPortsError::Xml(_))), "{xml}");
    }
}

#[test]
// D-conv-4 (docs/differences.md).
fn more_slots_than_pci_has_buses_are_refused() {
    let planned = |count: &str| {
        let mut vmi = vmi(1);
        vmi.metadata
            .annotations
            .insert(SLOT_COUNT_ANNOTATION.into(), count.into());
        HotplugPorts::plan(&vmi, &domain(1 << 30, 0))
    };
    assert_eq!(planned("255").unwrap().placeholders, 254);
    for count in ["256", "3000000", "9223372036854775807"] {
        assert_eq!(
            planned(count).unwrap_err().to_string(),
            format!(
                "metadata.annotations[kubevirt.io/pci-interface-slot-count]: {count:?} interface slots are too many; a machine has at most 255 PCIe root ports"
            )
        );
    }
    // As the reference reads it.
    for count in ["-1", "-9223372036854775808", "+0"] {
        assert_eq!(planned(count).unwrap().placeholders, 0, "{count}");
    }
    assert!(planned("9223372036854775808").is_err());
}

#[test]
fn a_controller_with_the_largest_index_leaves_no_room_for_ports() {
    let ports = HotplugPorts {
        placeholders: 0,
        extra: 9,
        model: String::new(),
    };
    let xml = "<domain><devices><controller type='pci' index='4294967295'/></devices></domain>";
    let defined = DomainSpec::from_xml(&ports.with_root_ports(xml).unwrap()).unwrap();
    assert_eq!(defined.devices.controllers.len(), 1);
}
