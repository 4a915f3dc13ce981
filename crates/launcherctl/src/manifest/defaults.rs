//! The defaults that a cluster adds to a VMI before it reaches a launcher: those of KubeVirt's
//! admission (`pkg/defaults` of the reference), and a status that names every volume.

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::FieldError;
use super::paths::pointer;
use super::rules::{too_little_memory, wrong_quantity};
use super::{DISKS, STATUS, VOLUMES};
use crate::json::{
    copy_at, find_named, is_object_at, is_true_at, list_at, list_mut, names_at, push, set,
    set_default, text_at,
};
use api::vmi::Quantity;

/// The phase of a VMI that was never sent.
pub const DEFAULT_PHASE: &str = "Scheduled";

/// Sets what admission would set, without overriding existing values.
///
/// # Errors
/// The VMI has no valid name, an architecture that KubeVirt does not support, or no memory size.
pub fn of_admission(vmi: &mut Value) -> Result<(), FieldError> {
    check_name(text_at(vmi, "/metadata/name"))?;
    set_default(vmi, "/metadata/namespace", "default");
    set_default(vmi, "/spec/architecture", host_architecture());
    let architecture = text_at(vmi, "/spec/architecture").to_owned();
    check_architecture(&architecture)?;
    let (machine, cpu, bus) = match &*architecture {
        "arm64" => ("virt", "host-passthrough", "virtio"),
        "amd64" => ("q35", "host-model", "sata"),
        "s390x" => ("s390-ccw-virtio", "host-model", "virtio"),
        _ => ("q35", "host-model", "virtio"),
    };
    set_default(vmi, "/spec/domain/machine/type", machine);
    default_cpu(vmi);
    set_default(vmi, "/spec/domain/cpu/model", cpu);
    default_memory(vmi)?;
    if architecture != "s390x" {
        set_default(vmi, "/spec/domain/features/acpi/enabled", true);
    }
    default_disks(vmi, bus);
    default_status(vmi);
    Ok(())
}

/// Kubernetes' limit of a name.
const MAX_NAME: usize = 253;

/// Kubernetes' rule for names, which also prevents a name from leading to another directory.
fn check_name(name: &str) -> Result<(), FieldError> {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_valid = name.len() <= MAX_NAME
        && name.chars().all(|c| is_outer(c) || c == '-' || c == '.')
        && name.starts_with(is_outer)
        && name.ends_with(is_outer);
    let message = match name {
        "" => "missing".to_owned(),
        _ if is_valid => return Ok(()),
        _ => format!(
            "{name:?} is not valid: at most {MAX_NAME} characters of a to z, 0 to 9, '-' and '.', with a letter or digit first and last"
        ),
    };
    Err(FieldError::new("metadata.name", message))
}

/// Admission refuses all others; the conversion would treat them as amd64.
fn check_architecture(name: &str) -> Result<(), FieldError> {
    let remedy = match name {
        "" | "amd64" | "arm64" | "s390x" => return Ok(()),
        "x86_64" | "x86-64" | "x86" => "did you mean amd64?",
        "aarch64" | "arm" => "did you mean arm64?",
        "s390" => "did you mean s390x?",
        _ => "expected amd64, arm64, s390x",
    };
    let message = format!("{name:?} is not supported; {remedy}");
    Err(FieldError::new("spec.architecture", message))
}

/// Without a topology, the requested CPUs become sockets.
fn default_cpu(vmi: &mut Value) {
    let has_topology = ["cores", "sockets", "threads"].iter().any(|part| {
        let count = vmi.pointer(&format!("/spec/domain/cpu/{part}"));
        count.and_then(Value::as_u64).is_some_and(|count| count > 0)
    });
    let requested = ["limits", "requests"].iter().find_map(|kind| {
        let cpus = vmi.pointer(&format!("/spec/domain/resources/{kind}/cpu"))?;
        let cpus = Quantity::deserialize(cpus).ok()?.value().ok()?;
        u32::try_from(cpus).ok().filter(|cpus| *cpus > 0)
    });
    let sockets = requested.filter(|_| !has_topology).unwrap_or(1);
    for (part, count) in [("sockets", sockets), ("cores", 1), ("threads", 1)] {
        set_default(vmi, &format!("/spec/domain/cpu/{part}"), count);
    }
}

/// Derives guest memory and request from each other.
fn default_memory(vmi: &mut Value) -> Result<(), FieldError> {
    let fields = [
        "spec.domain.memory.guest",
        "spec.domain.resources.requests.memory",
        "spec.domain.resources.limits.memory",
        "spec.domain.memory.hugepages.pageSize",
    ];
    let given = fields.map(|field| (field, copy_at(vmi, &pointer(field))));
    let mut given = given.into_iter();
    let Some((field, memory)) = given.find(|(_, memory)| !memory.is_null()) else {
        let message = "missing; e.g. 512Mi";
        return Err(FieldError::new("spec.domain.memory.guest", message));
    };
    // Otherwise the conversion would refuse a field that the user has not written.
    if let Some(message) = wrong_quantity(&memory).or_else(|| too_little_memory(&memory)) {
        return Err(FieldError::new(field, message));
    }
    set_default(vmi, "/spec/domain/memory/guest", memory.clone());
    set_default(vmi, "/spec/domain/resources/requests/memory", memory);
    Ok(())
}

/// A volume without a disk gets one; a disk without a target or bus gets the architecture's.
fn default_disks(vmi: &mut Value, bus: &str) {
    let kinds = ["/disk", "/lun", "/cdrom"];
    for name in names_at(vmi, VOLUMES) {
        let mut devices = [DISKS, "/spec/domain/devices/filesystems"].iter();
        if devices.all(|list| find_named(vmi, list, &name).is_none()) {
            push(vmi, DISKS, json!({"name": name}));
        }
    }
    for disk in list_mut(vmi, DISKS) {
        if kinds.iter().all(|kind| copy_at(disk, kind).is_null()) {
            set(disk, "/disk", json!({}));
        }
        for kind in kinds {
            if is_object_at(disk, kind) {
                set_default(disk, &format!("{kind}/bus"), bus);
            }
        }
        if let Some(members) = disk.as_object_mut() {
            members.retain(|_, member| !member.is_null());
        }
    }
}

/// Adds what only a cluster gives: the pod network for a VMI that names none, the interfaces of the
/// pod on which passt listens, and a launcher that is not root.
pub fn of_cluster(vmi: &mut Value) {
    const STATUS_OF_INTERFACES: &str = "/status/interfaces";
    set_default(vmi, "/status/runtimeUser", 107);
    default_interface(vmi);
    let interfaces = list_at(vmi, "/spec/domain/devices/interfaces").iter();
    let of_passt = interfaces.filter(|it| is_object_at(it, "/passtBinding"));
    let names: Vec<_> = of_passt.map(|it| text_at(it, "/name").to_owned()).collect();
    for name in names {
        if find_named(vmi, STATUS_OF_INTERFACES, &name).is_none() {
            let status = json!({"name": name, "podInterfaceName": "eth0"});
            push(vmi, STATUS_OF_INTERFACES, status);
        }
    }
}

/// A VMI without networks gets the pod network, by a bridge.
pub fn default_interface(vmi: &mut Value) {
    let is_wanted = copy_at(vmi, "/spec/domain/devices/autoattachPodInterface") != false;
    if is_wanted
        && list_at(vmi, "/spec/networks").is_empty()
        && list_at(vmi, "/spec/domain/devices/interfaces").is_empty()
    {
        let interfaces = json!([{"name": "default", "bridge": {}}]);
        set(vmi, "/spec/domain/devices/interfaces", interfaces);
        let networks = json!([{"name": "default", "pod": {}}]);
        set(vmi, "/spec/networks", networks);
    }
}

/// The status of a volume that its VMI says nothing of: of a claim that can be unplugged, as if it
/// were plugged in.
pub fn default_volume_status(volume: &Value) -> Value {
    let name = text_at(volume, "/name");
    match is_hotpluggable(volume) {
        true => plugged_status(name),
        false => json!({"name": name, "target": ""}),
    }
}

/// The status of a volume that is plugged in, as virt-controller and virt-handler report it.
pub fn plugged_status(name: &str) -> Value {
    let by = json!({"attachPodName": "launcherctl", "attachPodUID": ""});
    json!({"name": name, "phase": "Ready", "hotplugVolume": by})
}

/// Whether the volume is a claim that can be unplugged while the guest runs.
pub fn is_hotpluggable(volume: &Value) -> bool {
    let mut kinds = ["/persistentVolumeClaim", "/dataVolume"].iter();
    kinds.any(|kind| is_true_at(volume, &format!("{kind}/hotpluggable")))
}

/// virt-handler sends a status that names every volume.
pub(super) fn default_status(vmi: &mut Value) {
    set_default(vmi, "/status/phase", DEFAULT_PHASE);
    set_default(vmi, STATUS, json!([]));
    for volume in list_at(vmi, VOLUMES).to_vec() {
        if find_named(vmi, STATUS, text_at(&volume, "/name")).is_none() {
            push(vmi, STATUS, default_volume_status(&volume));
        }
    }
}

/// The architecture of this machine, as Kubernetes spells it.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A UUID in Kubernetes' format.
pub fn random_uuid() -> String {
    // The kernel's own generator; it is unreadable only if /proc is not mounted.
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    let uuid = uuid.as_deref().map(str::trim);
    uuid.unwrap_or("00000000-0000-4000-8000-000000000001")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_defaults(spec: Value) -> Value {
        let mut vmi = json!({"metadata": {"name": "a"}, "spec": spec});
        of_admission(&mut vmi).unwrap();
        vmi
    }

    #[test]
    fn a_volume_without_a_disk_gets_one_and_a_status() {
        let vmi = with_defaults(json!({
            "domain": {"memory": {"guest": "256Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "containerDisk": {"image": "x"}}, {"name": "data", "emptyDisk": {"capacity": "1Gi"}}],
        }));
        let disks = vmi["spec"]["domain"]["devices"]["disks"]
            .as_array()
            .unwrap();
        assert_eq!(disks.len(), 2);
        assert_eq!(disks[0], json!({"name": "root", "disk": {"bus": "virtio"}}));
        assert_eq!(disks[1]["name"], "data");
        assert_eq!(vmi["status"]["volumeStatus"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn memory_comes_from_the_request_if_the_guest_names_none() {
        let vmi = with_defaults(json!({"domain": {"resources": {"requests": {"memory": "1Gi"}}}}));
        assert_eq!(vmi["spec"]["domain"]["memory"]["guest"], "1Gi");
    }

    #[test]
    fn memory_that_is_not_a_size_is_named_as_the_user_wrote_it() {
        for (domain, field) in [
            (json!({"memory": {"guest": "1Gx"}}), "memory.guest"),
            (
                json!({"resources": {"limits": {"memory": "-1"}}}),
                "resources.limits.memory",
            ),
        ] {
            let mut vmi = json!({"metadata": {"name": "a"}, "spec": {"domain": domain}});
            let error = of_admission(&mut vmi).unwrap_err();
            assert_eq!(error.field, format!("spec.domain.{field}"));
        }
    }

    #[test]
    fn requested_cpus_are_sockets() {
        let sockets = |mut domain: Value| {
            domain["memory"] = json!({"guest": "1Gi"});
            with_defaults(json!({"domain": domain}))["spec"]["domain"]["cpu"]["sockets"].clone()
        };
        assert_eq!(sockets(json!({"resources": {"requests": {"cpu": 2}}})), 2);
        assert_eq!(
            sockets(json!({"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "2500m"}}})),
            3
        );
        assert_eq!(
            sockets(json!({"cpu": {"cores": 2}, "resources": {"requests": {"cpu": 2}}})),
            1
        );
        assert_eq!(sockets(json!({"resources": {}})), 1);
    }

    #[test]
    fn a_name_follows_the_rule_of_kubernetes() {
        for name in [
            "a/../../b",
            "..",
            "Upper",
            "-a",
            "a-",
            "ünï",
            &"a".repeat(254),
        ] {
            let error = of_admission(&mut json!({"metadata": {"name": name}})).unwrap_err();
            assert!(
                error.to_string().starts_with("metadata.name"),
                "{name}: {error}"
            );
        }
    }
}
