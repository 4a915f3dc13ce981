use super::*;
use api::vmi::interfaces::Interface;

fn vmi(interfaces: usize) -> Vmi {
    let mut vmi = Vmi::default();
    vmi.spec.domain.devices.interfaces = vec![Interface::default(); interfaces];
    vmi
}

/// The VMI with this annotation.
fn annotated(interfaces: usize, name: &str, value: &str) -> Vmi {
    let mut vmi = vmi(interfaces);
    let annotations = &mut vmi.metadata.annotations;
    annotations.insert(name.into(), value.into());
    vmi
}

fn ports(placeholders: usize, extra: usize) -> HotplugPorts {
    HotplugPorts {
        placeholders,
        extra,
        model: "virtio-non-transitional".into(),
    }
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
    for (interfaces, placeholders) in [(1, 3), (4, 0), (9, 0), (0, 0)] {
        let (found, _) = counts(&vmi(interfaces), &domain(1 << 30, 0));
        assert_eq!(found, placeholders, "{interfaces} interfaces");
    }
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
    for (count, placeholders) in [("7", 5), ("1", 0)] {
        let vmi = annotated(2, SLOT_COUNT_ANNOTATION, count);
        assert_eq!(counts(&vmi, &domain(1 << 30, 0)).0, placeholders);
    }
    let vmi = annotated(2, SLOT_COUNT_ANNOTATION, "many");
    let error = HotplugPorts::plan(&vmi, &domain(1 << 30, 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata.annotations[kubevirt.io/pci-interface-slot-count]: \"many\" is not a number"
    );
}

#[test]
fn machines_without_root_ports_get_none() {
    let root_complex = annotated(1, ROOT_COMPLEX_ANNOTATION, "true");
    let mut mainframe = vmi(1);
    mainframe.spec.architecture = "s390x".into();
    let mut pc = vmi(1);
    pc.spec.domain.machine = Some(api::vmi::status::Machine {
        r#type: "pc-i440fx-9.0".into(),
    });
    for vmi in [root_complex, mainframe, pc] {
        assert_eq!(counts(&vmi, &domain(1 << 30, 0)), (0, 0), "{vmi:?}");
    }
}

#[test]
fn placeholders_come_last_and_are_removed_without_a_trace() {
    let ports = ports(2, 2);
    let xml = "<domain type='kvm' xmlns:x='urn:x'>\n  <name>a</name>\n  <metadata><devices/></metadata>\n  <devices>\n    <interface type='ethernet'><alias name='ua-default'/></interface>\n    <odd keep='me'/>\n  </devices>\n  <x:own>&lt;devices></x:own>\n</domain>";
    let with = ports.with_placeholders(xml).unwrap();
    let read = DomainSpec::from_xml(&with).unwrap();
    let target = |i: &domain::interfaces::Interface| {
        i.target
            .as_ref()
            .map_or(String::new(), |t| t.device.clone())
    };
    let targets: Vec<_> = read.devices.interfaces.iter().map(target).collect();
    assert_eq!(targets, ["", "placeholder-0", "placeholder-1"]);
    // libvirt has added controllers meanwhile.
    let completed = with.replace("<odd", "<controller type='pci' index='0' model='pcie-root'/><controller type='pci' index='5'/><odd");
    let defined = ports.with_root_ports(&completed).unwrap();
    let read = DomainSpec::from_xml(&defined).unwrap();
    assert_eq!(read.devices.interfaces.len(), 1);
    let controllers = read.devices.controllers.iter();
    let indexes: Vec<_> = controllers.map(|it| it.index.as_str()).collect();
    assert_eq!(indexes, ["0", "5", "6", "7"]);
    for kept in ["<odd keep=\"me\"></odd>", "<x:own>&lt;devices&gt;</x:own>"] {
        assert!(defined.contains(kept), "{kept}: {defined}");
    }
}

#[test]
fn bus_0_is_never_overfilled() {
    // No controller fits above the highest possible index.
    for (last, controllers) in [("28", 4), ("4294967295", 1)] {
        let controller = format!("<controller type='pci' index='{last}'/>");
        let xml = format!("<domain><devices>{controller}</devices></domain>");
        let defined = ports(0, 9).with_root_ports(&xml).unwrap();
        let devices = DomainSpec::from_xml(&defined).unwrap().devices;
        assert_eq!(devices.controllers.len(), controllers, "{last}");
    }
}

#[test]
fn a_document_without_devices_is_refused() {
    let ports = ports(1, 0);
    for xml in ["<domain/>", "<domain><name>a</name></domain>"] {
        let refused = ports.with_placeholders(xml);
        let expected = matches!(refused, Err(HotplugPortsError::NoDevices));
        assert!(expected, "{xml}");
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
        let vmi = annotated(1, SLOT_COUNT_ANNOTATION, count);
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
