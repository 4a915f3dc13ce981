//! What plugins do to a domain, as KubeVirt's own tests and users have it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use serde_json::json;

use super::*;

const DOMAIN: &str = r#"<domain type="kvm" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
  <name>test-vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>
  <memory unit="MiB">1024</memory>
  <os><type arch="x86_64" machine="q35">hvm</type><boot dev="hd"/></os>
  <devices>
    <disk type="file" device="disk"><driver name="qemu" type="raw" cache="none"/><source file="/a.img"/><target dev="vda" bus="virtio"/><alias name="ua-a"/></disk>
    <disk type="block" device="disk"><source dev="/dev/b"/><target dev="vdb" bus="virtio"/><alias name="ua-b"/></disk>
    <controller type="pci" index="0" model="pcie-root"/>
    <interface type="ethernet"><mac address="de:ad:00:00:00:01"/><model type="virtio-non-transitional"/><address type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"/></interface>
    <unknown-device answer="42"/>
  </devices>
  <qemu:commandline><qemu:arg value="-fw_cfg"/></qemu:commandline>
</domain>"#;

fn vmi() -> Value {
    json!({
        "metadata": {"name": "test-vmi", "namespace": "default", "labels": {"app": "test"}},
        "spec": {
            "domain": {
                "cpu": {"cores": 4},
                "resources": {"requests": {"memory": "1Gi"}},
                "devices": {"disks": [{"name": "a", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "masquerade": {}}]}
            },
            "tolerations": [{"key": "gpu", "tolerationSeconds": 30}]
        }
    })
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn apply(plugins: Value) -> Result<String, PluginError> {
    applied(plugins).map(|applied| applied.xml)
}

fn applied(plugins: Value) -> Result<Applied, PluginError> {
    let pipeline = Pipeline::from_json(plugins.to_string().as_bytes()).unwrap();
    block_on(pipeline.apply(
        DOMAIN.into(),
        &Bytes::from(vmi().to_string()),
        InvocationContext::Boot,
        later(),
    ))
}

fn plugin(name: &str, hooks: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"domainHooks": hooks}})
}

/// The domain after one expression, without white space between elements.
fn mutated(expression: &str) -> Result<String, String> {
    let xml = apply(json!([plugin(
        "p",
        json!([{"cel": {"expression": expression}}])
    )]))
    .map_err(|error| error.to_string())?;
    Ok(xml.replace(['\n', '\t'], ""))
}

fn condition(text: &str) -> Result<bool, String> {
    expression::condition(
        text,
        &Input {
            domain: Arc::new(Element::parse(DOMAIN).unwrap()),
            vmi: Arc::new(vmi()),
        },
    )
}

#[test]
fn conditions_see_the_virtual_machine_and_the_domain() {
    for (text, expected) in [
        (r#"vmi.Labels["app"] == "test""#, true),
        (r#"vmi.Labels["app"] == "other""#, false),
        (
            r#"vmi.ObjectMeta.Namespace == "default" && vmi.Name.startsWith("test")"#,
            true,
        ),
        (r#"domainSpec.Type == "kvm""#, true),
        ("has(domainSpec.Memory)", true),
        ("has(domainSpec.CPU)", false),
        (r#"domainSpec.CPU.Mode == """#, true),
        (r#"domainSpec.Name.contains("test")"#, true),
        ("domainSpec.Memory.Value == uint(1024)", true),
        ("domainSpec.Devices.Disks.size() == 2", true),
        (
            r#"domainSpec.Devices.Disks.exists(d, d.Source.File.File == "/a.img")"#,
            true,
        ),
        (
            r#"domainSpec.Devices.Disks.all(d, has(d.Source.Block))"#,
            false,
        ),
        (
            r#"domainSpec.Devices.Disks.filter(d, has(d.Source.Block))[0].Source.Block.Dev == "/dev/b""#,
            true,
        ),
        (
            "has(domainSpec.Devices.Interfaces[0].Source.Ethernet)",
            true,
        ),
        (
            "domainSpec.Devices.Interfaces[0].Address.PCI.Bus == 1u",
            true,
        ),
        ("has(domainSpec.Devices.Interfaces[0].Driver)", false),
        (
            r#"domainSpec.QEMUCommandline.Args[0].Value == "-fw_cfg""#,
            true,
        ),
        ("vmi.Spec.Domain.CPU.Cores == 4u", true),
        ("vmi.Spec.Domain.CPU.Sockets == 0u", true),
        ("has(vmi.Spec.Domain.Memory)", false),
        (
            r#"vmi.Spec.Domain.Resources.Requests["memory"] == "1Gi""#,
            true,
        ),
        (
            r#"vmi.Spec.Domain.Devices.Disks[0].DiskDevice.Disk.Bus == "virtio""#,
            true,
        ),
        (
            r#"vmi.Spec.Domain.Devices.Disks[0].Disk.Bus == "virtio""#,
            true,
        ),
        (r#"vmi.Spec.Tolerations[0].TolerationSeconds == 30"#, true),
        (
            r#"size(vmi.Annotations) == 0 && !("x" in vmi.Annotations)"#,
            true,
        ),
    ] {
        assert_eq!(condition(text), Ok(expected), "{text}");
    }
}

#[test]
fn wrong_conditions_are_refused() {
    for (text, expected) in [
        ("invalid @@@ syntax", "compiling expression"),
        (
            "vmi.Nonsense == 1",
            "compiling expression: undefined field 'Nonsense'",
        ),
        (
            "true || domainSpec.CPU.Nonsense == 1",
            "undefined field 'Nonsense'",
        ),
        (
            "domainSpec.Devices.Disks.exists(d, d.Nonsense == 1)",
            "undefined field 'Nonsense'",
        ),
        ("vmi.Name", "condition must return bool, got string"),
        (r#"vmi.Annotations["x"]"#, "x"),
        ("nonsense == 1", "nonsense"),
        (&"(".repeat(10_000), "recursion limit"),
        (&" ".repeat(40_000), "size exceeds limit"),
        (&"!".repeat(5_000), "operators"),
    ] {
        let error = condition(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn types_of_kubernetes_itself_read_as_in_go() {
    let vmi = json!({
        "metadata": {"name": "vm", "creationTimestamp": "2024-05-01T10:00:00Z"},
        "spec": {
            "domain": {
                "features": {"acpi": {}, "apic": {"endOfInterrupt": true}},
                "resources": {"requests": {"memory": "1Gi"}},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]}}},
            "tolerations": [{"key": "gpu"}],
            "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "claim", "hotpluggable": true}}],
            "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}},
        }
    });
    let input = Input {
        domain: Arc::new(Element::parse(DOMAIN).unwrap()),
        vmi: Arc::new(vmi),
    };
    for (text, expected) in [
        (
            r#"vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == "claim""#,
            true,
        ),
        (
            r#"vmi.Spec.Volumes[0].PersistentVolumeClaim.PersistentVolumeClaimVolumeSource.ClaimName == "claim""#,
            true,
        ),
        ("vmi.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly", false),
        (r#""memory" in vmi.Spec.Domain.Resources.Requests"#, true),
        ("vmi.Spec.Domain.Resources.Limits.size() == 0", true),
        (
            r#"vmi.Spec.Tolerations.exists(t, t.Effect == "" && t.Key == "gpu")"#,
            true,
        ),
        (
            "has(vmi.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)",
            false,
        ),
        (
            r#"vmi.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
                .exists(t, t.MatchExpressions.exists(e, e.Key == "zone" && "a" in e.Values))"#,
            true,
        ),
        ("vmi.Spec.DNSConfig.Nameservers.size() == 0", true),
        ("vmi.Spec.ReadinessProbe.TCPSocket.Port.IntVal == 80", true),
        (
            r#"vmi.Spec.ReadinessProbe.TCPSocket.Port.StrVal == """#,
            true,
        ),
        (
            r#"vmi.Spec.LivenessProbe.HTTPGet.Port.StrVal == "http" && vmi.Spec.LivenessProbe.HTTPGet.Port.IntVal == 0"#,
            true,
        ),
        (
            r#"vmi.CreationTimestamp.Time < timestamp("2025-01-01T00:00:00Z")"#,
            true,
        ),
        (
            "vmi.Status.MigrationState.StartTimestamp.Time.getFullYear() == 1970",
            true,
        ),
        (
            "has(vmi.Spec.Domain.Devices.Interfaces[0].Masquerade)",
            true,
        ),
        // What is no pointer in Go is set when it is not zero.
        ("has(vmi.Spec.Domain.Features.ACPI)", false),
        ("has(vmi.Spec.Domain.Features.APIC)", true),
        (
            "has(domainSpec.OS.Type.Arch) && has(domainSpec.Devices.Disks[0].Target)",
            true,
        ),
    ] {
        assert_eq!(expression::condition(text, &input), Ok(expected), "{text}");
    }
    for (text, expected) in [
        (
            "vmi.Spec.Domain.CPU.Cores == 4",
            "found no matching overload for '_==_' applied to '(uint, int)'",
        ),
        (
            "domainSpec.Memory.Value > 1024",
            "found no matching overload for '_>_' applied to '(uint, int)'",
        ),
        ("vmi.Name == null", "'_==_' applied to '(string, null"),
        (
            r#"vmi["Name"] == "x""#,
            "found no matching overload for '_[_]' applied to '(v1.VirtualMachineInstance, string)'",
        ),
        (
            r#"vmi.Labels["nope"] == "x""#,
            "evaluating expression: no such key: nope",
        ),
        (
            r#"domainSpec.Devices.Disks[5].Device == "disk""#,
            "evaluating expression: index out of bounds: 5",
        ),
        ("1 / 0 == 1", "evaluating expression: division by zero"),
    ] {
        let error = expression::condition(text, &input).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

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
fn null_empties_an_embedded_struct_too() {
    let hyperv = "DomainFeatureHyperV{Spinlocks: DomainFeatureHyperVSpinlocks{Retries: 5u, DomainFeatureState: null}}";
    let xml = mutated(&format!(
        "Domain{{Features: DomainFeatureList{{HyperV: {hyperv}}}}}"
    ))
    .unwrap();
    assert!(xml.contains(r#"<spinlocks retries="5">"#), "{xml}");
}

#[test]
fn an_empty_mutation_changes_nothing_and_what_no_table_knows_stays() {
    let xml = apply(json!([plugin(
        "noop",
        json!([{"cel": {"expression": "Domain{}"}}])
    )]))
    .unwrap();
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
fn structs_are_merged_and_made_where_they_are_missing() {
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
fn kinds_are_told_where_libvirt_looks_for_them() {
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
fn the_two_sources_of_a_udp_device_are_one_in_expressions() {
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
    let input = Input {
        domain: Arc::new(Element::parse(&given).unwrap()),
        vmi: Arc::new(vmi()),
    };
    let source = "domainSpec.Devices.Consoles[0].Source.UDP";
    for holds in [
        format!(r#"{source}.BindHost == "127.0.0.1""#),
        format!(r#"{source}.ConnectService == "2""#),
    ] {
        assert_eq!(expression::condition(&holds, &input), Ok(true), "{holds}");
    }
    let titled = expression::mutation(r#"Domain{Title: "t"}"#, &input)
        .unwrap()
        .to_xml()
        .replace(['\n', '\t'], "");
    assert!(
        titled.contains(&format!("{bind}{connect}<target")),
        "{titled}"
    );
}

#[test]
fn a_smartcard_is_of_the_kind_that_its_fields_make_it() {
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
fn a_kind_changes_when_the_old_one_is_null_and_only_then() {
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
    let given =
        Element::parse(r#"<domain><name>n</name><os><nvram type="file"><source file="/a" index="1"/></nvram></os></domain>"#).unwrap();
    let with = |file: &str| {
        let text = format!(
            r#"Domain{{OS: DomainOS{{NVRam: DomainNVRam{{Source: DomainDiskSource{{{file}Block: DomainDiskSourceBlock{{Dev: "/dev/x"}}}}}}}}}}"#
        );
        let input = Input {
            domain: Arc::new(given.clone()),
            vmi: Arc::new(vmi()),
        };
        expression::mutation(&text, &input)
            .unwrap()
            .to_xml()
            .replace(['\n', '\t'], "")
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
fn the_namespace_of_qemus_own_elements_is_declared() {
    let pipeline = json!([plugin(
        "p",
        json!([{"cel": {"expression": r#"Domain{QEMUCommandline: DomainQEMUCommandline{Args: [DomainQEMUCommandlineArg{Value: "-x"}]}}"#}}])
    )]);
    let pipeline = Pipeline::from_json(pipeline.to_string().as_bytes()).unwrap();
    let xml = "<domain><name>n</name></domain>".to_owned();
    let xml = block_on(pipeline.apply(
        xml,
        &Bytes::from_static(b"{}"),
        InvocationContext::Boot,
        later(),
    ))
    .unwrap()
    .xml;
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
        (r#"Domain{Name: "other"}"#, "the domain's name was changed"),
        (r#"Domain{UUID: ""}"#, "the domain's UUID was changed"),
        (r#"Domain{Title: vmi.Labels["missing"]}"#, "missing"),
        (r#"Domain{IOThreads: dyn(1)}"#, "int is not what it holds"),
    ] {
        let error = mutated(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn deep_expressions_end_in_an_answer() {
    for deep in [
        format!("{}true{}", "(".repeat(250), ")".repeat(250)),
        format!("0{} == 0", "+0".repeat(3_900)),
        format!("{}true", "!".repeat(3_900)),
        format!("vmi{}", ".Spec".repeat(3_900)),
        format!("true{}", " ? true : false".repeat(1_900)),
        format!("{}1{}", "[".repeat(200), "]".repeat(200)),
    ] {
        // Whether it holds does not matter.
        let _ = apply(json!([{"spec": {"condition": deep}}]));
    }
}

fn titled(title: &str) -> Value {
    json!({"cel": {"expression": format!("Domain{{Title: {title:?}}}")}})
}

#[test]
fn plugins_apply_by_name_and_hooks_as_declared() {
    let xml = apply(json!([
        plugin("beta", json!([titled("from-beta")])),
        plugin("alpha", json!([titled("from-alpha")]))
    ]))
    .unwrap();
    assert!(
        xml.contains("from-beta") && !xml.contains("from-alpha"),
        "{xml}"
    );
    let xml = apply(json!([plugin(
        "p",
        json!([titled("first"), titled("second")])
    )]))
    .unwrap();
    assert!(xml.contains("second") && !xml.contains("first"), "{xml}");
}

#[test]
fn a_plugin_is_read_as_virt_handler_writes_it() {
    let list = json!([{
        "metadata": {"name": "p", "creationTimestamp": null, "resourceVersion": "7"},
        "spec": {
            "condition": "vmi.Name != ''", "failureStrategy": "Fail",
            "domainHooks": [
                {"cel": {"expression": "Domain{Title: 'set'}"}, "failureStrategy": "Ignore", "timeout": "1m30s"},
                // Half of a hook is a hook that fails, and no list that cannot be read.
                {"cel": {}, "failureStrategy": "Ignore"},
                {"sidecar": {}, "failureStrategy": "Ignore", "timeout": "100µs"},
            ],
            "nodeHooks": [{"socket": "/node.sock", "permittedHooks": ["PreVMStart"]}],
            "mutatingAdmissionPolicies": [{"name": "m"}], "validatingAdmissionWebhooks": null,
        },
        "status": {},
    }]);
    assert!(apply(list).unwrap().contains("<title>set</title>"));
}

#[test]
fn those_that_changed_something_are_known() {
    let same = json!({"cel": {"expression": "Domain{}"}});
    let plugins = json!([
        plugin("b", json!([same])),
        plugin("c", json!([titled("1"), titled("2")])),
        plugin("a", json!([titled("0")]))
    ]);
    assert_eq!(applied(plugins).unwrap().touched, ["a", "c"]);
}

#[test]
fn no_plugins_and_an_empty_list_leave_the_text_as_it_is() {
    for list in ["", "null", "[]"] {
        let pipeline = Pipeline::from_json(list.as_bytes()).unwrap();
        let applied = block_on(pipeline.apply(
            DOMAIN.into(),
            &Bytes::from_static(b"{}"),
            InvocationContext::Boot,
            later(),
        ))
        .unwrap();
        assert_eq!(
            applied,
            Applied {
                xml: DOMAIN.into(),
                touched: Vec::new()
            }
        );
    }
    assert!(matches!(
        Pipeline::from_json(b"{"),
        Err(PluginError::List(_))
    ));
}

#[test]
fn conditions_of_plugins_and_hooks_filter() {
    let with = |outer: &str, inner: &str| {
        let hook = json!({"condition": inner, "cel": {"expression": r#"Domain{Title: "set"}"#}});
        apply(json!([{"metadata": {"name": "p"}, "spec": {"condition": outer, "domainHooks": [hook]}}])).unwrap().contains("set")
    };
    assert!(with("", "") && with("true", r#"vmi.Namespace == "default""#));
    assert!(!with("false", "true") && !with("true", r#"vmi.Namespace == "wrong""#));
}

#[test]
fn a_condition_that_fails_counts_whatever_the_strategy() {
    let bad = json!({"metadata": {"name": "p"}, "spec": {"condition": "invalid!!!", "failureStrategy": "Ignore", "domainHooks": [titled("x")]}});
    assert!(matches!(
        apply(json!([bad])).unwrap_err(),
        PluginError::Condition { hook: None, .. }
    ));
    let bad = json!({"metadata": {"name": "p"}, "spec": {"domainHooks": [{"condition": "1", "failureStrategy": "Ignore"}]}});
    let error = apply(json!([bad])).unwrap_err().to_string();
    assert!(
        error
            .starts_with("plugin p hook 0 condition evaluation failed: condition must return bool"),
        "{error}"
    );
}

#[test]
fn the_hooks_strategy_counts_before_the_plugins_and_fail_is_the_default() {
    for (plugin, hook, fails) in [
        ("", "Fail", true),
        ("", "Ignore", false),
        ("", "", true),
        ("Ignore", "", false),
        ("Ignore", "Fail", true),
    ] {
        let bad = json!({"failureStrategy": hook, "cel": {"expression": "invalid!!! expression"}});
        let result = apply(
            json!([{"metadata": {"name": "p"}, "spec": {"failureStrategy": plugin, "domainHooks": [bad, titled("after")]}}]),
        );
        match result {
            Ok(xml) => assert!(!fails && xml.contains("after"), "{plugin:?} {hook:?}"),
            Err(error) => assert!(
                fails
                    && error
                        .to_string()
                        .starts_with("plugin p hook 0 failed: compiling"),
                "{error}"
            ),
        }
    }
}

#[test]
fn a_hook_that_is_neither_is_passed_over_and_a_socket_elsewhere_is_refused() {
    assert!(
        apply(json!([plugin("p", json!([{}, titled("after")]))]))
            .unwrap()
            .contains("after")
    );
    let error = apply(json!([plugin(
        "p",
        json!([{"sidecar": {"socketPath": "/tmp/test.sock"}}])
    )]))
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("outside /var/run/kubevirt-plugin/p/"),
        "{error}"
    );
}

#[test]
fn timeouts_are_as_kubernetes_writes_them() {
    for (text, milliseconds) in [
        ("30s", 30_000),
        ("1m30s", 90_000),
        ("1m0s", 60_000),
        ("500ms", 500),
        ("1.5s", 1_500),
        ("1h0m0s", 3_600_000),
        ("1500µs", 1),
        ("0s", 0),
    ] {
        assert_eq!(
            duration(text).map(|time| time.as_millis()),
            Ok(milliseconds),
            "{text}"
        );
    }
    assert!(duration("-1s").is_err() && duration("30").is_err() && duration("").is_err());
}

#[test]
fn an_expression_that_takes_too_long_is_given_up() {
    let range = format!("[{}]", vec!["1"; 40].join(","));
    let slow = format!(
        "{range}.all(a, {range}.all(b, {range}.all(c, {range}.all(d, a + b + c + d == 4))))"
    );
    let pipeline = Pipeline::from_json(
        json!([{"spec": {"condition": slow}}])
            .to_string()
            .as_bytes(),
    )
    .unwrap();
    let result = block_on(async {
        let until = Instant::now() + Duration::from_millis(200);
        pipeline
            .apply(
                DOMAIN.into(),
                &Bytes::from_static(b"{}"),
                InvocationContext::Boot,
                until,
            )
            .await
    });
    assert!(result.unwrap_err().to_string().contains("no result after"));
}

#[test]
fn an_expression_that_costs_too_much_is_ended() {
    let ten = format!("[{}]", ["1"; 10].join(","));
    let loops = |last: &str| format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.{last})))");
    let doubled = |start: &str, step: &str| {
        format!(
            "size({start}{}) == 1",
            format!(".map(x, {step})").repeat(60)
        )
    };
    for text in [
        loops("all(d, a + b + c + d == 4)"),
        loops("exists(d, d == 2) || true"),
        loops("filter(d, d == 2).size() == 0"),
        loops("exists_one(d, d == 2) || true"),
        doubled("['a']", "x + x"),
        doubled("[[1]]", "x + x"),
        doubled("[1]", "[x, x]"),
        doubled("[1]", "{'a': x, 'b': x}"),
    ] {
        let error = within_limit(text.clone()).unwrap_err();
        assert!(error.contains("cost limit exceeded"), "{text}: {error}");
    }
    // What an author may well do costs a small part of it.
    let all = "domainSpec.Devices.Disks.all(d, domainSpec.Devices.Disks.exists(e, e.Target.Dev == d.Target.Dev))";
    assert_eq!(within_limit(all.to_owned()), Ok(true));
    assert_eq!(
        within_limit(format!(
            "{ten}.map(a, a * 2).filter(a, a == 2).size() == 10"
        )),
        Ok(true)
    );
}

/// A condition under a limit that is low enough for a test, with the stack that evaluations have.
fn within_limit(text: String) -> Result<bool, String> {
    let evaluate = move || cost::limited(5_000, later().into_std(), || condition(&text));
    std::thread::Builder::new()
        .stack_size(expression::STACK)
        .spawn(evaluate)
        .unwrap()
        .join()
        .unwrap()
}
