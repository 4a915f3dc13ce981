use serde_json::{Value, json};

use super::*;

const ALL: Rewrites = Rewrites {
    upgrade_ordinal_interfaces: true,
    vgpu: true,
};

fn vmi(value: Value) -> Vmi {
    serde_json::from_value(value).unwrap()
}

fn rewritten(xml: &str, vmi: &Vmi, ctx: &Context) -> Result<Element, String> {
    let document = rewrite(xml, vmi, ctx, ALL).map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    })?;
    Ok(Element::parse(&document).unwrap())
}

fn device<'e>(domain: &'e Element, kind: &str) -> &'e Element {
    domain.child("devices").unwrap().child(kind).unwrap()
}

fn of_device(kind: &str) -> String {
    format!("<domain><devices>{kind}</devices></domain>")
}

#[test]
// The root port is one of KubeVirt v1.10: D-next-1 (docs/differences.md).
fn a_domain_that_fits_stays_as_it_is() {
    let xml = "<domain type='kvm' xmlns:qemu='q'><name>a</name><unknown><b c='d'/></unknown><devices><disk><source file='/ns1/a'/></disk><controller type='pci' index='1' model='pcie-root-port'><target chassis='1' port='0x8' hotplug='off'/></controller></devices><qemu:commandline/></domain>";
    let same = rewritten(xml, &Vmi::default(), &Context::default()).unwrap();
    assert_eq!(same, Element::parse(xml).unwrap());
}

#[test]
fn what_is_not_a_domain_is_refused() {
    for xml in ["", "<domain>", "<!DOCTYPE d><domain/>"] {
        assert!(rewritten(xml, &Vmi::default(), &Context::default()).is_err());
    }
}

// ---- paths of disks

fn moving(source: Value, target: Value) -> Vmi {
    vmi(json!({
        "metadata": {"namespace": "own"},
        "status": {"migrationState": {"sourceState": source, "targetState": target}},
    }))
}

fn disk_paths(vmi: &Vmi) -> (String, String) {
    let xml = of_device(
        "<disk><source file='/a/own/own/b'><dataStore type='file'><source file='/own/c'/></dataStore></source></disk>",
    );
    let domain = rewritten(&xml, vmi, &Context::default()).unwrap();
    let source = device(&domain, "disk").child("source").unwrap();
    let store = source.child("dataStore").unwrap().child("source").unwrap();
    let file = |source: &Element| source.attribute("file").unwrap().to_owned();
    (file(source), file(store))
}

#[test]
fn the_first_namespace_in_a_path_is_the_targets() {
    let expected = |first: &str, store: &str| (first.to_owned(), store.to_owned());
    let new = json!({"domainNamespace": "new"});
    let moved = disk_paths(&moving(Value::Null, new.clone()));
    assert_eq!(moved, expected("/a/new/own/b", "/new/c"));
    for (source, target) in [
        (json!({"domainNamespace": "other"}), new),
        (Value::Null, Value::Null),
        (Value::Null, json!({"domainNamespace": "own"})),
        (Value::Null, json!({})),
    ] {
        let kept = disk_paths(&moving(source, target));
        assert_eq!(kept, expected("/a/own/own/b", "/own/c"));
    }
}

#[test]
fn block_devices_and_disks_without_a_source_have_no_path() {
    let xml = of_device("<disk><source dev='/dev/own/x'/></disk><disk device='cdrom'/>");
    let vmi = moving(Value::Null, json!({"domainNamespace": "new"}));
    let domain = rewritten(&xml, &vmi, &Context::default()).unwrap();
    assert_eq!(domain, Element::parse(&xml).unwrap());
}

// ---- tap devices

fn tap(device: &str, alias: &str) -> Result<String, String> {
    let vmi = vmi(json!({"spec": {"networks": [
        {"name": "default", "pod": {}},
        {"name": "blue", "multus": {"networkName": "blue"}},
        {"name": "primary", "multus": {"networkName": "p", "default": true}},
    ]}}));
    let xml = of_device(&format!(
        "<interface type='ethernet'><target dev='{device}' managed='no'/>{alias}</interface>"
    ));
    let domain = rewritten(&xml, &vmi, &Context::default())?;
    let target = super::tests::device(&domain, "interface").child("target");
    Ok(target.unwrap().attribute("dev").unwrap().to_owned())
}

#[test]
fn only_numbered_taps_of_secondary_networks_get_another_name() {
    let alias = |name: &str| format!("<alias name='{name}'/>");
    assert_eq!(tap("tap1", &alias("ua-blue")).unwrap(), "tap16477688c0e");
    assert_eq!(tap("tap12", &alias("ua-primary")).unwrap(), "tap0");
    for kept in ["tap0", "tap16477688c0e", "tap", "tapx1", "vnet1"] {
        assert_eq!(tap(kept, "").unwrap(), kept);
    }
}

#[test]
fn a_numbered_tap_of_no_network_is_refused() {
    for (alias, reason) in [
        ("", "no alias"),
        ("<alias name='net0'/>", "does not begin with"),
        ("<alias name='ua-red'/>", "no network"),
    ] {
        let error = tap("tap1", alias).unwrap_err();
        assert!(
            error.contains("\"tap1\"") && error.contains(reason),
            "{error}"
        );
    }
}

// ---- vGPU

const VGPU: &str = "<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='of-the-source'/></source></hostdev>";

fn gpus(gpus: Value) -> Context {
    serde_json::from_value(json!({"gpuHostDevices": gpus})).unwrap()
}

fn mdev(uuid: &str) -> Value {
    json!({"type": "mdev", "sourceAddress": {"uuid": uuid}})
}

#[test]
fn the_vgpu_is_the_one_of_this_pod() {
    let context = gpus(json!([mdev("mine")]));
    let domain = rewritten(&of_device(VGPU), &Vmi::default(), &context).unwrap();
    let source = device(&domain, "hostdev").child("source").unwrap();
    let uuid = source.child("address").unwrap().attribute("uuid");
    assert_eq!(uuid, Some("mine"));
}

#[test]
fn without_a_gpu_here_or_a_device_there_nothing_changes() {
    for (xml, ctx) in [
        (of_device(VGPU), Context::default()),
        (of_device(""), gpus(json!([mdev("a"), mdev("b")]))),
    ] {
        let domain = rewritten(&xml, &Vmi::default(), &ctx).unwrap();
        assert_eq!(domain, Element::parse(&xml).unwrap());
    }
}

#[test]
fn devices_that_cannot_be_exchanged_are_refused() {
    let pci = "<hostdev type='pci'><source><address/></source></hostdev>";
    for (xml, ctx) in [
        (VGPU.repeat(2), gpus(json!([mdev("a")]))),
        (VGPU.to_owned(), gpus(json!([mdev("a"), mdev("b")]))),
        (VGPU.to_owned(), gpus(json!([{"type": "mdev"}]))),
        (
            VGPU.to_owned(),
            gpus(json!([{"type": "pci", "sourceAddress": {"uuid": "u"}}])),
        ),
        (pci.to_owned(), gpus(json!([mdev("a")]))),
        (
            "<hostdev type='mdev'/>".to_owned(),
            gpus(json!([mdev("a")])),
        ),
    ] {
        let refused = rewritten(&of_device(&xml), &Vmi::default(), &ctx);
        assert!(refused.is_err(), "{xml}");
    }
}

// ---- dedicated CPUs

fn dedicated(cpu: Value) -> Vmi {
    let mut cpu = cpu;
    cpu["dedicatedCpuPlacement"] = json!(true);
    vmi(json!({"spec": {"architecture": "amd64", "domain": {"cpu": cpu}}}))
}

/// A node of one NUMA cell, with these CPUs for the pod.
fn node(cpus: &[u32]) -> Context {
    let cell: Vec<Value> = (0..16)
        .map(|id| json!({"id": id, "siblings": [id]}))
        .collect();
    serde_json::from_value(json!({
        "architecture": "amd64", "cpuSet": cpus, "topology": {"numaCells": [{"id": 0, "cpus": cell}]},
    }))
    .unwrap()
}

fn pins(domain: &Element) -> Vec<String> {
    let tune = domain.child("cputune").unwrap();
    let pins = tune.children().filter(|child| child.name == "vcpupin");
    pins.map(|pin| pin.attribute("cpuset").unwrap().to_owned())
        .collect()
}

#[test]
fn vcpus_move_to_the_cpus_of_this_pod() {
    let xml = "<domain><vcpu placement='static' current='1'>2</vcpu><cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='2'/></cputune><features><acpi/></features><cpu mode='host-model'><model>x</model></cpu></domain>";
    let domain = rewritten(xml, &dedicated(json!({"cores": 2})), &node(&[7, 9])).unwrap();
    assert_eq!(pins(&domain), ["7", "9"]);
    let vcpu = domain.child("vcpu").unwrap();
    assert_eq!(vcpu.text(), "2");
    assert_eq!(vcpu.attribute("current"), None);
    let cpu = domain.child("cpu").unwrap();
    assert_eq!(cpu.child("topology").unwrap().attribute("cores"), Some("2"));
    assert_eq!(cpu.child("model").unwrap().text(), "x");
    let features = domain.child("features").unwrap();
    let kvm = features.child("kvm").unwrap();
    let hint = kvm.child("hint-dedicated").unwrap();
    assert_eq!(hint.attribute("state"), Some("on"));
    assert!(features.child("acpi").is_some());
}

#[test]
fn only_vcpus_that_are_plugged_in_are_pinned() {
    let vcpu = |id: u32| {
        let enabled = if id < 2 { "yes" } else { "no" };
        format!("<vcpu id='{id}' enabled='{enabled}' hotpluggable='yes'/>")
    };
    let vcpus: String = (0..4).map(vcpu).collect();
    let xml = format!("<domain><vcpu>4</vcpu><vcpus>{vcpus}</vcpus></domain>");
    // The VMI wants three; virt-handler has them plugged in when the guest is here.
    let vmi = dedicated(json!({"sockets": 3, "maxSockets": 4}));
    let domain = rewritten(&xml, &vmi, &node(&[1, 2, 3])).unwrap();
    assert_eq!(pins(&domain), ["1", "2"]);
    assert_eq!(domain.child("vcpu").unwrap().text(), "4");
    assert_eq!(domain.child("vcpus").unwrap().children().count(), 4);
}

#[test]
fn a_pod_without_enough_cpus_is_refused() {
    let error = rewritten("<domain/>", &dedicated(json!({"cores": 2})), &node(&[7])).unwrap_err();
    assert!(
        error.contains("CPUs of this pod") && error.contains("2 vCPUs"),
        "{error}"
    );
}

#[test]
fn the_guests_memory_comes_from_the_nodes_of_its_cpus() {
    let mut vmi = serde_json::to_value(json!({"spec": {"architecture": "amd64", "domain": {
        "cpu": {"cores": 1, "dedicatedCpuPlacement": true, "numa": {"guestMappingPassthrough": {}}},
        "memory": {"guest": "4Mi", "hugepages": {"pageSize": "2Mi"}},
    }}}))
    .unwrap();
    let xml = "<domain><numatune><memory mode='strict' nodeset='3'/></numatune></domain>";
    let nodeset = |vmi: &Value| {
        let vmi = super::tests::vmi(vmi.clone());
        let domain = rewritten(xml, &vmi, &node(&[5])).unwrap();
        let memory = domain.child("numatune").unwrap().child("memory").unwrap();
        memory.attribute("nodeset").unwrap().to_owned()
    };
    assert_eq!(nodeset(&vmi), "0");
    vmi["spec"]["domain"]["cpu"]["numa"] = Value::Null;
    assert_eq!(nodeset(&vmi), "3", "as it arrives");
}
