//! What is refused, one case for each rule: the field that the refusal names, and a word of the
//! reason. Devices and disks have theirs beside their code.

use serde_json::{Value, json};

use super::{Context, domain};
use api::vmi::Vmi;

/// Refuses `{"metadata":…,"spec":…}` in a context.
fn refused(vmi: Value, context: Value) -> (String, String) {
    let mut ctx: Context = serde_json::from_value(context).unwrap();
    ctx.hypervisor_device_available |= !ctx.allow_emulation && ctx.hypervisor_name.is_empty();
    let vmi: Vmi = serde_json::from_value(vmi).unwrap();
    let error = domain(&vmi, &ctx).unwrap_err();
    (error.field.into_owned(), error.reason.to_string())
}

/// Asserts that the `domain` of a VMI is refused.
fn domain_is_refused(domain: Value, context: Value, field: &str, word: &str) {
    let (at, reason) = refused(json!({"spec": {"domain": domain}}), context);
    assert!(at == field && reason.contains(word), "{at}: {reason}");
}

/// Two cells of two cores with a thread each.
fn node() -> Value {
    let cell = |id: u32| json!({"id": id, "cpus": [{"id": 2 * id, "siblings": [2 * id]}, {"id": 2 * id + 1, "siblings": [2 * id + 1]}]});
    json!({"numaCells": [cell(0), cell(1)]})
}

fn pinned(more: Value) -> Value {
    let mut cpu = json!({"cores": 2, "dedicatedCpuPlacement": true});
    cpu.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"cpu": cpu, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}})
}

#[test]
// D-conv-3 (docs/differences.md).
fn more_vcpus_than_libvirt_describes() {
    let refused = |domain: Value, field: &str| {
        domain_is_refused(domain, json!({"architecture": "amd64"}), field, "16384");
    };
    for number in ["cores", "sockets", "threads", "maxSockets"] {
        let mut cpu = json!({"cores": 2, "threads": 2});
        cpu[number] = json!(16385);
        refused(json!({"cpu": cpu}), &format!("spec.domain.cpu.{number}"));
    }
    for (list, cpus) in [("limits", "16385"), ("requests", "-1"), ("limits", "5e9")] {
        let field = format!("spec.domain.resources.{list}.cpu");
        refused(json!({"resources": {list: {"cpu": cpus}}}), &field);
    }
    refused(
        json!({"cpu": {"maxSockets": 4294967295_u32}}),
        "spec.domain.cpu.maxSockets",
    );
    let most = json!({"cpu": {"sockets": 64, "cores": 128, "threads": 2, "maxSockets": 64}});
    let vmi: Vmi = serde_json::from_value(json!({"spec": {"domain": most}})).unwrap();
    let ctx = json!({"architecture": "amd64", "allowEmulation": true});
    domain(&vmi, &serde_json::from_value(ctx).unwrap()).unwrap();
}

#[test]
// D-conv-3 (docs/differences.md).
fn a_pool_of_iothreads_for_very_many_disks() {
    let disks: Vec<Value> = (0..17)
        .map(|n| json!({"name": format!("d{n}"), "disk": {}}))
        .collect();
    domain_is_refused(
        json!({"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 4096}, "devices": {"disks": disks}}),
        json!({}),
        "spec.domain.ioThreads.supplementalPoolThreadCount",
        "17 disks",
    );
}

#[test]
fn memory_below_zero() {
    domain_is_refused(
        json!({"memory": {"guest": "-1Gi"}}),
        json!({}),
        "spec.domain.memory.guest",
        "-1Gi",
    );
    domain_is_refused(
        json!({"resources": {"limits": {"memory": "-1"}}}),
        json!({}),
        "spec.domain.resources.limits.memory",
        "-1",
    );
    domain_is_refused(
        json!({"memory": {"guest": "1Gi", "maxGuest": "-2Gi"}}),
        json!({}),
        "spec.domain.memory.maxGuest",
        "-2Gi",
    );
}

#[test]
// D-conv-1 (docs/differences.md).
fn a_maximum_of_memory_without_memory() {
    domain_is_refused(
        json!({"memory": {"maxGuest": "2Gi"}}),
        json!({}),
        "spec.domain.memory.maxGuest",
        "set spec.domain.memory.guest",
    );
}

#[test]
// D-conv-1 (docs/differences.md).
fn hyperv_passthrough_that_does_not_say_whether() {
    let field = "spec.domain.features.hypervPassthrough.enabled";
    domain_is_refused(
        json!({"features": {"hypervPassthrough": {}}}),
        json!({}),
        field,
        "true or false",
    );
}

#[test]
fn acpi_tables_that_are_none_missing_or_no_secrets() {
    domain_is_refused(
        json!({"firmware": {"acpi": {}}}),
        json!({}),
        "spec.domain.firmware.acpi",
        "slicNameRef",
    );
    let msdm = json!({"firmware": {"acpi": {"msdmNameRef": "licence"}}});
    domain_is_refused(
        msdm.clone(),
        json!({}),
        "spec.domain.firmware.acpi.msdmNameRef",
        "no volume \"licence\"",
    );
    let vmi = json!({"spec": {"domain": msdm, "volumes": [{"name": "licence", "configMap": {}}]}});
    let (field, reason) = refused(vmi, json!({}));
    assert!(
        field.ends_with("msdmNameRef") && reason.contains("is not a Secret"),
        "{field}: {reason}"
    );
}

#[test]
fn interfaces_without_a_network_a_good_address_or_a_pod_interface() {
    let networks = json!([{"name": "default", "pod": {}}]);
    let interface = |interface: Value| {
        refused(
            json!({"spec": {"networks": networks, "domain": {"devices": {"interfaces": [interface]}}}}),
            json!({}),
        )
    };
    let (field, reason) = interface(json!({"name": "lost", "bridge": {}}));
    assert!(
        field == "spec.domain.devices.interfaces[0].name" && reason.contains("\"lost\""),
        "{field}: {reason}"
    );
    let (field, reason) = interface(json!({"name": "default", "pciAddress": "81:00.0"}));
    assert!(
        field == "spec.domain.devices.interfaces[0].pciAddress" && reason.contains("81:00.0"),
        "{field}: {reason}"
    );
    let (field, reason) = interface(json!({"name": "default", "passtBinding": {}}));
    assert!(
        field == "spec.domain.devices.interfaces[0].passtBinding"
            && reason.contains("podInterfaceName"),
        "{field}: {reason}"
    );
}

#[test]
fn no_hypervisor_and_no_emulation() {
    let (field, reason) = refused(json!({}), json!({"hypervisorName": "hyperv-direct"}));
    assert!(
        field == "hypervisorDeviceAvailable" && reason.contains("/dev/mshv"),
        "{field}: {reason}"
    );
}

#[test]
fn a_foreign_architecture_without_an_emulator() {
    let foreign = json!({"allowCrossArchEmulation": true, "hostArchitecture": "amd64", "missingEmulatorBinaries": ["/usr/bin/qemu-system-s390x"]});
    for (guest, word) in [
        ("riscv64", "amd64, arm64 and s390x"),
        ("s390x", "not installed"),
    ] {
        let (field, reason) = refused(json!({"spec": {"architecture": guest}}), foreign.clone());
        assert!(
            field == "spec.architecture" && reason.contains(word),
            "{field}: {reason}"
        );
    }
}

#[test]
fn dedicated_cpus_that_the_pod_does_not_have() {
    let field = "spec.domain.cpu.dedicatedCpuPlacement";
    domain_is_refused(
        pinned(json!({})),
        json!({"cpuSet": [0, 1]}),
        field,
        "topology of the node",
    );
    domain_is_refused(
        pinned(json!({"cores": 3})),
        json!({"cpuSet": [0, 1], "topology": node()}),
        field,
        "the pod has 2 CPUs",
    );
    let isolated = pinned(json!({"isolateEmulatorThread": true}));
    domain_is_refused(
        isolated,
        json!({"cpuSet": [0, 1], "topology": node()}),
        "spec.domain.cpu.isolateEmulatorThread",
        "1 dedicated CPU(s)",
    );
}

#[test]
// D-conv-1 (docs/differences.md).
fn a_pool_of_iothreads_without_cpus() {
    let mut domain = pinned(json!({}));
    domain["ioThreadsPolicy"] = json!("supplementalPool");
    domain["ioThreads"] = json!({"supplementalPoolThreadCount": 3});
    let field = "spec.domain.ioThreads.supplementalPoolThreadCount";
    domain_is_refused(
        domain,
        json!({"cpuSet": [0, 1, 2], "topology": node()}),
        field,
        "has 1 left",
    );
}

#[test]
fn numa_cells_without_hugepages_that_fit() {
    let numa = json!({"numa": {"guestMappingPassthrough": {}}});
    let context = json!({"cpuSet": [1, 2], "topology": node()});
    let with = |change: fn(&mut Value)| {
        let mut domain = pinned(numa.clone());
        change(&mut domain);
        domain
    };
    let passthrough = "spec.domain.cpu.numa.guestMappingPassthrough";
    let no_pages = with(|domain| domain["memory"] = json!({"guest": "1Gi"}));
    domain_is_refused(no_pages, context.clone(), passthrough, "hugepages");
    let crossing = with(|domain| {
        domain["cpu"] =
            json!({"threads": 2, "dedicatedCpuPlacement": true, "numa": domain["cpu"]["numa"]})
    });
    domain_is_refused(crossing, context.clone(), passthrough, "do not fit");
    let page_size = "spec.domain.memory.hugepages.pageSize";
    let no_size = with(|domain| domain["memory"]["hugepages"]["pageSize"] = json!("two megs"));
    domain_is_refused(no_size, context.clone(), page_size, "two megs");
    let nothing = with(|domain| domain["memory"]["hugepages"]["pageSize"] = json!("0"));
    domain_is_refused(nothing, context.clone(), page_size, "must not be empty");
    let too_small = with(|domain| domain["memory"]["guest"] = json!("2Mi"));
    domain_is_refused(
        too_small,
        context.clone(),
        "spec.domain.memory.guest",
        "less than one page",
    );
    let remainder = with(|domain| domain["memory"]["guest"] = json!("5Mi"));
    domain_is_refused(
        remainder,
        context,
        "spec.domain.memory.guest",
        "not a multiple",
    );
}

#[test]
fn host_devices_that_have_no_numa_cell_under_numa_passthrough() {
    let context = json!({
        "cpuSet": [1, 2], "topology": node(), "pciNUMAAwareTopologyEnabled": true,
        "genericHostDevices": [{"type": "pci", "sourceAddress": {"domain": "0x0000", "bus": "0x81", "slot": "0x00", "function": "0x0"}}],
    });
    let numa = pinned(json!({"numa": {"guestMappingPassthrough": {}}}));
    domain_is_refused(
        numa,
        context,
        "spec.domain.cpu.numa.guestMappingPassthrough",
        "0000:81:00.0",
    );
}

#[test]
fn grace_gpus_where_something_is_missing() {
    let context = |more: Value| {
        let mut context = json!({
            "architecture": "arm64", "cpuSet": [1, 2], "topology": node(), "graceHostDeviceAliases": ["gpu"],
            "graceIOVirtualizationEnabled": true, "pciNUMAAwareTopologyEnabled": true, "iommufdEnabled": true,
        });
        context
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        context
    };
    for member in [
        "graceIOVirtualizationEnabled",
        "pciNUMAAwareTopologyEnabled",
        "iommufdEnabled",
    ] {
        domain_is_refused(
            pinned(json!({})),
            context(json!({ member: false })),
            member,
            "must be true",
        );
    }
    domain_is_refused(
        json!({}),
        context(json!({})),
        "spec.domain.cpu.dedicatedCpuPlacement",
        "must be true",
    );
    domain_is_refused(
        pinned(json!({})),
        context(json!({"architecture": "s390x"})),
        "architecture",
        "PCI Express",
    );
    domain_is_refused(
        pinned(json!({})),
        context(json!({})),
        "graceHostDeviceAliases",
        "/sys/class/iommu",
    );
    let smmu =
        json!({"hostLinks": {"/sys/class/iommu/smmu3": "../../devices/arm-smmu-v3.0/iommu/smmu3"}});
    domain_is_refused(
        pinned(json!({})),
        context(smmu),
        "graceHostDeviceAliases",
        "no host device has that alias",
    );
    for annotation in [
        "kubevirt.io/disablePCIHole64",
        "kubevirt.io/placePCIDevicesOnRootComplex",
    ] {
        let vmi = json!({"metadata": {"annotations": { annotation: "true" }}, "spec": {"domain": pinned(json!({}))}});
        assert_eq!(
            refused(vmi, context(json!({}))).0,
            format!("metadata.annotations[{annotation}]")
        );
    }
}
