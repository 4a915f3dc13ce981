//! Tests the changes that mutations make to the domain.

use domain::xml::tree::Element;
use serde_json::json;

use super::{DOMAIN, condition_on, input, mutated, mutated_on, vmi};

#[test]
fn a_scsi_device_over_iscsi_is_not_taken_for_a_local_one() {
    let source = r#"DomainHostdevSubsysSCSISource{ISCSI: DomainHostdevSubsysSCSISourceISCSI{Name: "iqn.x"}}"#;
    let hostdev =
        format!("DomainHostdev{{SubsysSCSI: DomainHostdevSubsysSCSI{{Source: {source}}}}}");
    let xml = mutated(&format!(
        "Domain{{Devices: DomainDeviceList{{Hostdevs: [{hostdev}]}}}}"
    ))
    .unwrap();
    assert!(
        xml.contains(r#"<source name="iqn.x" protocol="iscsi">"#),
        "{xml}"
    );
}

#[test]
fn null_clears_an_embedded_struct() {
    let hyperv = "DomainFeatureHyperV{Spinlocks: DomainFeatureHyperVSpinlocks{Retries: 5u, DomainFeatureState: null}}";
    let xml = mutated(&format!(
        "Domain{{Features: DomainFeatureList{{HyperV: {hyperv}}}}}"
    ))
    .unwrap();
    assert!(xml.contains(r#"<spinlocks retries="5">"#), "{xml}");
}

#[test]
fn an_empty_mutation_changes_nothing_and_unknown_elements_stay() {
    let xml = mutated("Domain{}").unwrap();
    assert_eq!(
        Element::parse(&xml).unwrap(),
        Element::parse(DOMAIN).unwrap()
    );
    assert!(
        mutated(r#"Domain{Title: "x"}"#)
            .unwrap()
            .contains(r#"<unknown-device answer="42"></unknown-device>"#)
    );
}

#[test]
fn fields_are_set_in_attributes_elements_and_text() {
    let xml = mutated(r#"Domain{Title: "modified", Memory: DomainMemory{Value: uint(2048), Unit: "GiB"}, IOThreads: 2u}"#).unwrap();
    assert!(
        xml.contains("<title>modified</title>") && xml.contains("<iothreads>2</iothreads>"),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<memory unit="GiB">2048</memory>"#) && xml.contains("<name>test-vm</name>"),
        "{xml}"
    );
}

#[test]
fn structs_are_merged_and_added_where_they_are_missing() {
    let xml = mutated(r#"libvirtxml.Domain{Memory: DomainMemory{Unit: "GiB"}, CPU: DomainCPU{Mode: "host-passthrough"}}"#).unwrap();
    assert!(
        xml.contains(r#"<memory unit="GiB">1024</memory>"#)
            && xml.contains(r#"<cpu mode="host-passthrough"></cpu>"#),
        "{xml}"
    );
    let xml = mutated(r#"Domain{OS: DomainOS{BootMenu: DomainBootMenu{Enable: "yes"}, BootDevices: [DomainBootDevice{Dev: "network"}]}}"#)
        .unwrap();
    assert!(
        xml.contains(r#"<boot dev="network"></boot><bootmenu enable="yes"></bootmenu></os>"#)
            && xml.contains(">hvm<"),
        "{xml}"
    );
}

#[test]
fn lists_are_replaced_and_null_removes() {
    let sysinfo = r#"Domain{SysInfo: [DomainSysInfo{SMBIOS: DomainSysInfoSMBIOS{BaseBoard: [DomainSysInfoBaseBoard{
        Entry: [DomainSysInfoEntry{Name: "manufacturer", Value: "R. Edward"}]}]}}, DomainSysInfo{FWCfg: DomainSysInfoFWCfg{}}]}"#;
    let xml = mutated(sysinfo).unwrap();
    let expected = r#"<sysinfo type="smbios"><baseBoard><entry name="manufacturer">R. Edward</entry></baseBoard></sysinfo><sysinfo type="fwcfg"></sysinfo>"#;
    assert!(xml.contains(expected), "{xml}");
    let xml = mutated("Domain{Memory: null, Devices: DomainDeviceList{Disks: []}}").unwrap();
    assert!(
        !xml.contains("<memory") && !xml.contains("<disk") && xml.contains("<controller"),
        "{xml}"
    );
    assert!(!mutated(r#"Domain{Type: ""}"#).unwrap().contains("kvm"));
}

#[test]
fn parts_of_the_domain_can_be_used_again() {
    let xml = mutated(
        r#"Domain{Devices: DomainDeviceList{Disks: domainSpec.Devices.Disks.filter(d, d.Target.Dev == "vdb") + [DomainDisk{
            Device: "cdrom", Source: DomainDiskSource{File: DomainDiskSourceFile{File: "/c.iso"}}, Target: DomainDiskTarget{Dev: "sda"}}]}}"#,
    )
    .unwrap();
    assert!(!xml.contains("/a.img"), "{xml}");
    assert!(
        xml.contains(r#"<disk type="block" device="disk"><source dev="/dev/b">"#),
        "{xml}"
    );
    assert!(xml.contains(r#"<disk device="cdrom" type="file"><source file="/c.iso"></source><target dev="sda"></target></disk>"#), "{xml}");
    let xml = mutated(
        r#"Domain{Devices: DomainDeviceList{Disks: domainSpec.Devices.Disks.map(d, DomainDisk{Source: d.Source, Target: d.Target,
            Driver: DomainDiskDriver{IO: has(d.Source.Block) ? "native" : "threads"}})}}"#,
    )
    .unwrap();
    assert!(
        xml.contains(r#"<disk type="block"><driver io="native"></driver><source dev="/dev/b">"#),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<disk type="file"><driver io="threads"></driver><source file="/a.img">"#),
        "{xml}"
    );
}

#[test]
fn discriminators_are_written_where_libvirt_reads_them() {
    let xml = mutated(
        r#"Domain{Devices: DomainDeviceList{
            Serials: [DomainSerial{Source: DomainChardevSource{Pty: DomainChardevSourcePty{}}}],
            RNGs: [DomainRNG{Model: "virtio", Backend: DomainRNGBackend{Random: DomainRNGBackendRandom{Device: "/dev/urandom"}}}],
            Hostdevs: [DomainHostdev{SubsysPCI: DomainHostdevSubsysPCI{Source: DomainHostdevSubsysPCISource{Address: DomainAddressPCI{Bus: 3u}}}}]
        }}"#,
    )
    .unwrap();
    assert!(xml.contains(r#"<serial type="pty"></serial>"#), "{xml}");
    assert!(
        xml.contains(r#"<backend model="random">/dev/urandom</backend>"#),
        "{xml}"
    );
    assert!(xml.contains(r#"<hostdev mode="subsystem" type="pci"><source><address bus="3"></address></source></hostdev>"#), "{xml}");
}

#[test]
fn the_two_sources_of_a_udp_device_are_one_struct() {
    let udp = |fields: &str| {
        format!(
            "[DomainSerial{{Source: DomainChardevSource{{UDP: DomainChardevSourceUDP{{{fields}}}}}}}]"
        )
    };
    let made = |fields: &str| {
        mutated(&format!(
            "Domain{{Devices: DomainDeviceList{{Serials: {}}}}}",
            udp(fields)
        ))
        .unwrap()
    };
    let bind = r#"<source mode="bind" host="127.0.0.1" service="1"></source>"#;
    let connect = r#"<source mode="connect" host="127.0.0.2" service="2"></source>"#;
    let both =
        r#"BindHost: "127.0.0.1", BindService: "1", ConnectHost: "127.0.0.2", ConnectService: "2""#;
    assert!(
        made(both).contains(&format!(r#"<serial type="udp">{bind}{connect}</serial>"#)),
        "{}",
        made(both)
    );
    let one = made(r#"ConnectHost: "127.0.0.2", ConnectService: "2""#);
    assert!(
        one.contains(&format!(r#"<serial type="udp">{connect}</serial>"#)),
        "{one}"
    );

    let given = format!(
        "<domain><name>n</name><devices><console type='udp'>{bind}{connect}<target port='0'/></console></devices></domain>"
    );
    let input = input(&given, vmi());
    let source = "domainSpec.Devices.Consoles[0].Source.UDP";
    for holds in [
        format!(r#"{source}.BindHost == "127.0.0.1""#),
        format!(r#"{source}.ConnectService == "2""#),
    ] {
        assert_eq!(condition_on(&holds, &input), Ok(true), "{holds}");
    }
    let titled = mutated_on(r#"Domain{Title: "t"}"#, &input).unwrap();
    assert!(
        titled.contains(&format!("{bind}{connect}<target")),
        "{titled}"
    );
}

#[test]
fn the_fields_of_a_smartcard_select_its_variant() {
    let made = |fields: &str| {
        mutated(&format!(
            "Domain{{Devices: DomainDeviceList{{Smartcards: [DomainSmartcard{{{fields}}}]}}}}"
        ))
        .unwrap()
    };
    let certificate = r#"HostCerts: [DomainSmartcardHostCert{File: "c1"}]"#;
    let passthrough = "Passthrough: DomainChardevSource{SpiceVMC: DomainChardevSourceSpiceVMC{}}";
    for (fields, expected) in [
        (
            "Host: DomainSmartcardHost{}".to_owned(),
            r#"<smartcard mode="host">"#,
        ),
        (
            certificate.to_owned(),
            r#"<smartcard mode="host-certificates"><certificate>c1</certificate>"#,
        ),
        (
            passthrough.to_owned(),
            r#"<smartcard type="spicevmc" mode="passthrough">"#,
        ),
        (
            format!("{certificate}, {passthrough}, Host: DomainSmartcardHost{{}}"),
            r#" mode="passthrough""#,
        ),
        (
            format!("Host: DomainSmartcardHost{{}}, {certificate}"),
            r#"<smartcard mode="host">"#,
        ),
        (
            "HostCerts: [], Host: DomainSmartcardHost{}".to_owned(),
            r#"<smartcard mode="host">"#,
        ),
    ] {
        assert!(
            made(&fields).contains(expected),
            "{fields}: {}",
            made(&fields)
        );
    }
    let tcp = made(
        r#"Passthrough: DomainChardevSource{TCP: DomainChardevSourceTCP{Mode: "bind", Host: "127.0.0.1"}}"#,
    );
    assert!(
        tcp.contains(
            r#"type="tcp" mode="passthrough"><source host="127.0.0.1" mode="bind"></source>"#
        ),
        "{tcp}"
    );
}

#[test]
fn a_variant_changes_only_when_the_old_one_is_set_to_null() {
    let disk = |file: &str| {
        let source =
            format!(r#"DomainDiskSource{{{file}Block: DomainDiskSourceBlock{{Dev: "/dev/x"}}}}"#);
        mutated(&format!(
            r#"Domain{{Devices: DomainDeviceList{{Disks: [], MemBalloon: null}}, OS: DomainOS{{NVRam: DomainNVRam{{Source: {source}}}}}}}"#
        ))
    };
    assert!(
        disk("")
            .unwrap()
            .contains(r#"<nvram type="block"><source dev="/dev/x"></source></nvram>"#)
    );
    let given = r#"<domain><name>n</name><os><nvram type="file"><source file="/a" index="1"/></nvram></os></domain>"#;
    let with = |file: &str| {
        let text = format!(
            r#"Domain{{OS: DomainOS{{NVRam: DomainNVRam{{Source: DomainDiskSource{{{file}Block: DomainDiskSourceBlock{{Dev: "/dev/x"}}}}}}}}}}"#
        );
        mutated_on(&text, &input(given, vmi())).unwrap()
    };
    assert!(
        with("").contains(r#"<nvram type="file"><source file="/a" index="1"></source></nvram>"#),
        "{}",
        with("")
    );
    assert!(
        with("File: null, ")
            .contains(r#"<nvram type="block"><source index="1" dev="/dev/x"></source></nvram>"#),
        "{}",
        with("File: null, ")
    );
}

#[test]
fn the_namespace_of_qemu_elements_is_declared() {
    let expression = r#"Domain{QEMUCommandline: DomainQEMUCommandline{Args: [DomainQEMUCommandlineArg{Value: "-x"}]}}"#;
    let domain = input("<domain><name>n</name></domain>", json!({}));
    let xml = mutated_on(expression, &domain).unwrap();
    let tree = Element::parse(&xml).unwrap();
    assert_eq!(
        tree.attribute("xmlns:qemu"),
        Some("http://libvirt.org/schemas/domain/qemu/1.0")
    );
    assert_eq!(
        tree.child("qemu:commandline")
            .unwrap()
            .child("qemu:arg")
            .unwrap()
            .attribute("value"),
        Some("-x")
    );
}

#[test]
fn wrong_mutations_are_refused() {
    for (text, expected) in [
        ("bad syntax !!!", "compiling expression"),
        (
            r#"Domainn{Title: "x"}"#,
            "undeclared reference to 'Domainn'",
        ),
        (r#"Domain{Bogus: "x"}"#, "undefined field 'Bogus'"),
        (
            "Domain{IOThreads: 2}",
            "expected type of field 'IOThreads' of Domain is 'uint' but provided type is 'int'",
        ),
        (
            r#"Domain{Memory: DomainCPU{}}"#,
            "expected type of field 'Memory'",
        ),
        ("domainSpec.Name", "mutation must return a Domain object"),
        ("vmi", "mutation must return a Domain object"),
        (r#"Domain{Title: vmi.Labels["missing"]}"#, "missing"),
        (
            r#"Domain{IOThreads: dyn(1)}"#,
            "Domain.IOThreads: expected uint but got int",
        ),
    ] {
        let error = mutated(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
