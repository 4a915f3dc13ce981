//! Tests the changes that mutations make to the domain.

use domain::xml::tree::Element;
use serde_json::json;

use super::{DOMAIN, condition_on, has, input, mutated, mutated_on, vmi};

#[test]
fn a_scsi_device_over_iscsi_is_not_taken_for_a_local_one() {
    let source = r#"DomainHostdevSubsysSCSISource{ISCSI: DomainHostdevSubsysSCSISourceISCSI{Name: "iqn.x"}}"#;
    let hostdev =
        format!("DomainHostdev{{SubsysSCSI: DomainHostdevSubsysSCSI{{Source: {source}}}}}");
    let xml = mutated(&format!(
        "Domain{{Devices: DomainDeviceList{{Hostdevs: [{hostdev}]}}}}"
    ))
    .unwrap();
    has(&xml, r#"<source name="iqn.x" protocol="iscsi">"#);
}

#[test]
fn null_clears_an_embedded_struct() {
    let hyperv = "DomainFeatureHyperV{Spinlocks: DomainFeatureHyperVSpinlocks{Retries: 5u, DomainFeatureState: null}}";
    let xml = mutated(&format!(
        "Domain{{Features: DomainFeatureList{{HyperV: {hyperv}}}}}"
    ))
    .unwrap();
    has(&xml, r#"<spinlocks retries="5">"#);
}

#[test]
fn an_empty_mutation_changes_nothing_and_unknown_elements_stay() {
    let xml = mutated("Domain{}").unwrap();
    assert_eq!(Element::parse(&xml), Element::parse(DOMAIN));
    let titled = mutated(r#"Domain{Title: "x"}"#).unwrap();
    has(&titled, r#"<unknown-device answer="42"></unknown-device>"#);
}

#[test]
fn fields_are_set_in_attributes_elements_and_text() {
    let xml = mutated(r#"Domain{Title: "modified", Memory: DomainMemory{Value: uint(2048), Unit: "GiB"}, IOThreads: 2u}"#).unwrap();
    has(&xml, "<title>modified</title>");
    has(&xml, "<iothreads>2</iothreads>");
    has(&xml, r#"<memory unit="GiB">2048</memory>"#);
    has(&xml, "<name>test-vm</name>");
}

#[test]
fn structs_are_merged_and_added_where_they_are_missing() {
    let xml = mutated(r#"libvirtxml.Domain{Memory: DomainMemory{Unit: "GiB"}, CPU: DomainCPU{Mode: "host-passthrough"}}"#).unwrap();
    has(&xml, r#"<memory unit="GiB">1024</memory>"#);
    has(&xml, r#"<cpu mode="host-passthrough"></cpu>"#);
    let xml = mutated(r#"Domain{OS: DomainOS{BootMenu: DomainBootMenu{Enable: "yes"}, BootDevices: [DomainBootDevice{Dev: "network"}]}}"#)
        .unwrap();
    has(
        &xml,
        r#"<boot dev="network"></boot><bootmenu enable="yes"></bootmenu></os>"#,
    );
    has(&xml, ">hvm<");
}

#[test]
fn lists_are_replaced_and_null_removes() {
    let sysinfo = r#"Domain{SysInfo: [DomainSysInfo{SMBIOS: DomainSysInfoSMBIOS{BaseBoard: [DomainSysInfoBaseBoard{
        Entry: [DomainSysInfoEntry{Name: "manufacturer", Value: "R. Edward"}]}]}}, DomainSysInfo{FWCfg: DomainSysInfoFWCfg{}}]}"#;
    let xml = mutated(sysinfo).unwrap();
    let expected = r#"<sysinfo type="smbios"><baseBoard><entry name="manufacturer">R. Edward</entry></baseBoard></sysinfo><sysinfo type="fwcfg"></sysinfo>"#;
    has(&xml, expected);
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
    has(
        &xml,
        r#"<disk type="block" device="disk"><source dev="/dev/b">"#,
    );
    has(
        &xml,
        r#"<disk device="cdrom" type="file"><source file="/c.iso"></source><target dev="sda"></target></disk>"#,
    );
    let xml = mutated(
        r#"Domain{Devices: DomainDeviceList{Disks: domainSpec.Devices.Disks.map(d, DomainDisk{Source: d.Source, Target: d.Target,
            Driver: DomainDiskDriver{IO: has(d.Source.Block) ? "native" : "threads"}})}}"#,
    )
    .unwrap();
    has(
        &xml,
        r#"<disk type="block"><driver io="native"></driver><source dev="/dev/b">"#,
    );
    has(
        &xml,
        r#"<disk type="file"><driver io="threads"></driver><source file="/a.img">"#,
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
    has(&xml, r#"<serial type="pty"></serial>"#);
    has(&xml, r#"<backend model="random">/dev/urandom</backend>"#);
    has(
        &xml,
        r#"<hostdev mode="subsystem" type="pci"><source><address bus="3"></address></source></hostdev>"#,
    );
}

#[test]
fn the_two_sources_of_a_udp_device_are_one_struct() {
    let made = |fields: &str| {
        let udp = format!("DomainChardevSource{{UDP: DomainChardevSourceUDP{{{fields}}}}}");
        let serials = format!("[DomainSerial{{Source: {udp}}}]");
        mutated(&format!(
            "Domain{{Devices: DomainDeviceList{{Serials: {serials}}}}}"
        ))
        .unwrap()
    };
    let bind = r#"<source mode="bind" host="127.0.0.1" service="1"></source>"#;
    let connect = r#"<source mode="connect" host="127.0.0.2" service="2"></source>"#;
    let both =
        r#"BindHost: "127.0.0.1", BindService: "1", ConnectHost: "127.0.0.2", ConnectService: "2""#;
    let serial = |sources: String| format!(r#"<serial type="udp">{sources}</serial>"#);
    has(&made(both), &serial(format!("{bind}{connect}")));
    let one = made(r#"ConnectHost: "127.0.0.2", ConnectService: "2""#);
    has(&one, &serial(connect.to_owned()));

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
    has(&titled, &format!("{bind}{connect}<target"));
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
        has(&made(&fields), expected);
    }
    let tcp = made(
        r#"Passthrough: DomainChardevSource{TCP: DomainChardevSourceTCP{Mode: "bind", Host: "127.0.0.1"}}"#,
    );
    has(
        &tcp,
        r#"type="tcp" mode="passthrough"><source host="127.0.0.1" mode="bind"></source>"#,
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
    has(
        &disk("").unwrap(),
        r#"<nvram type="block"><source dev="/dev/x"></source></nvram>"#,
    );
    let given = r#"<domain><name>n</name><os><nvram type="file"><source file="/a" index="1"/></nvram></os></domain>"#;
    let with = |file: &str| {
        let text = format!(
            r#"Domain{{OS: DomainOS{{NVRam: DomainNVRam{{Source: DomainDiskSource{{{file}Block: DomainDiskSourceBlock{{Dev: "/dev/x"}}}}}}}}}}"#
        );
        mutated_on(&text, &input(given, vmi())).unwrap()
    };
    for (file, expected) in [
        (
            "",
            r#"<nvram type="file"><source file="/a" index="1"></source></nvram>"#,
        ),
        (
            "File: null, ",
            r#"<nvram type="block"><source index="1" dev="/dev/x"></source></nvram>"#,
        ),
    ] {
        has(&with(file), expected);
    }
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
    let commandline = tree.child("qemu:commandline").unwrap();
    let argument = commandline.child("qemu:arg").unwrap();
    assert_eq!(argument.attribute("value"), Some("-x"));
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
