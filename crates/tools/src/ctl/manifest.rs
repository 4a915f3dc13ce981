//! A VMI or VM manifest as a user writes it, completed to what reaches a launcher in a cluster: the
//! defaults of KubeVirt's admission (its `pkg/defaults`) and a status that names every volume.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::offline::read_text;
use super::{CtlError, documents};
use api::vmi::{Quantity, Vmi};

/// A VMI as JSON, complete enough for a launcher.
#[derive(Debug, Clone)]
pub struct Manifest {
    vmi: Value,
}

impl Manifest {
    /// Reads YAML or JSON; `-` is standard input.
    ///
    /// # Errors
    /// If the file cannot be read or holds no VirtualMachineInstance or VirtualMachine.
    pub fn read(file: &Path) -> Result<Self, CtlError> {
        let text = read_text(file)?;
        Self::parse(&text).map_err(|reason| CtlError::manifest(file, reason))
    }

    /// Reads YAML or JSON from text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut vmi = documents::the_vmi(documents::read(text)?)?;
        complete(&mut vmi)?;
        default(&mut vmi, "/metadata/uid", || json!(random_uuid()));
        typed(&vmi)?;
        Ok(Self { vmi })
    }

    /// Makes it a later version of a VMI that has been sent.
    ///
    /// # Errors
    /// If it is another VM.
    pub fn take_the_place_of(&mut self, sent: &Value) -> Result<(), String> {
        for part in ["namespace", "name"] {
            let (is, was) = (&self.vmi["metadata"][part], &sent["metadata"][part]);
            if is != was {
                return Err(format!(
                    "metadata.{part}: {is}, but the VM that runs has {was}"
                ));
            }
        }
        self.vmi["metadata"]["uid"] = sent["metadata"]["uid"].clone();
        self.vmi["status"]["phase"] = sent["status"]["phase"].clone();
        Ok(())
    }

    /// The VMI.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.vmi
    }

    /// The VMI, to be changed.
    pub fn value_mut(&mut self) -> &mut Value {
        &mut self.vmi
    }

    /// A text inside the VMI, empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.vmi
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The names of the volumes, in order, with their definition.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Value)> {
        let volumes = self
            .vmi
            .pointer("/spec/volumes")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        volumes
            .iter()
            .map(|volume| (volume["name"].as_str().unwrap_or_default(), volume))
    }
}

/// The VMI for a verb that starts nothing: from a manifest, completed; or, if it is for a context that a launcher has
/// seen, as that launcher got it.
///
/// # Errors
/// What is wrong with it.
pub fn offline(text: &str, is_complete: bool) -> Result<(Value, Vmi), String> {
    let document = documents::read(text)?;
    let is_vm = document.iter().any(|document| {
        document["kind"]
            .as_str()
            .is_some_and(|kind| kind != "VirtualMachineInstance")
    });
    let mut vmi = match document.as_slice() {
        [one] if one["kind"].is_null() && one.is_object() => one.clone(),
        _ => documents::the_vmi(document)?,
    };
    if is_vm || !is_complete {
        complete(&mut vmi)?;
        complete_for_a_cluster(&mut vmi);
    }
    let typed = typed(&vmi)?;
    Ok((vmi, typed))
}

/// The VMI as the conversion reads it.
fn typed(value: &Value) -> Result<Vmi, String> {
    Vmi::deserialize(value).map_err(|error| {
        let error = error.to_string();
        let path = culprit(value, &error);
        if path.is_empty() {
            error
        } else {
            format!("{path}: {error}")
        }
    })
}

/// Where the error comes from: the innermost member without which it is not there.
fn culprit(value: &Value, error: &str) -> String {
    let (mut pointer, mut path) = (String::new(), String::new());
    loop {
        let inner = match value.pointer(&pointer) {
            Some(Value::Object(members)) => members
                .keys()
                .map(|key| (escaped(key), format!(".{key}")))
                .collect(),
            Some(Value::Array(items)) => (0..items.len())
                .map(|index| (index.to_string(), format!("[{index}]")))
                .collect(),
            _ => Vec::new(),
        };
        let is_guilty = |step: &String| {
            let mut without = value.clone();
            without
                .pointer_mut(&format!("{pointer}/{step}"))
                .map(Value::take);
            Vmi::deserialize(&without)
                .err()
                .is_none_or(|other| other.to_string() != error)
        };
        let Some((step, name)) = inner.into_iter().find(|(step, _)| is_guilty(step)) else {
            break;
        };
        pointer += &format!("/{step}");
        path += &name;
    }
    path.trim_start_matches('.').to_owned()
}

/// As a JSON pointer has it.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Fills in what admission would, without overriding what is there.
fn complete(vmi: &mut Value) -> Result<(), String> {
    check_name(vmi["metadata"]["name"].as_str().unwrap_or_default())?;
    default(vmi, "/metadata/namespace", || json!("default"));
    default(vmi, "/spec/architecture", || json!(host_architecture()));
    let architecture = vmi["spec"]["architecture"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    default(vmi, "/spec/domain/machine/type", || {
        json!(machine(&architecture))
    });
    complete_cpu(vmi);
    default(vmi, "/spec/domain/cpu/model", || {
        json!(if architecture == "arm64" {
            "host-passthrough"
        } else {
            "host-model"
        })
    });
    complete_memory(vmi)?;
    if architecture != "s390x" {
        default(vmi, "/spec/domain/features/acpi/enabled", || json!(true));
    }
    complete_disks(vmi, &architecture);
    complete_status(vmi);
    Ok(())
}

/// Kubernetes' rule, which keeps a name out of other directories than its own.
fn check_name(name: &str) -> Result<(), String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    match name {
        "" => Err("metadata.name: missing".into()),
        _ if name.len() <= 63
            && name.chars().all(is_inner)
            && name.starts_with(is_outer)
            && name.ends_with(is_outer) =>
        {
            Ok(())
        }
        _ => Err(format!(
            "metadata.name: {name:?}: at most 63 of a to z, 0 to 9, '-' and '.' make a name, which begins and ends with a letter or digit"
        )),
    }
}

/// Without a topology, the CPUs that are asked for are sockets.
fn complete_cpu(vmi: &mut Value) {
    let domain = &vmi["spec"]["domain"];
    let has_topology = ["cores", "sockets", "threads"]
        .iter()
        .any(|part| domain["cpu"][part].as_u64().is_some_and(|n| n > 0));
    let asked = ["limits", "requests"].iter().find_map(|kind| {
        let cpus = Quantity::deserialize(&domain["resources"][kind]["cpu"]).ok()?;
        u32::try_from(cpus.value().ok()?)
            .ok()
            .filter(|cpus| *cpus > 0)
    });
    let sockets = if has_topology { 1 } else { asked.unwrap_or(1) };
    for (part, count) in [("sockets", sockets), ("cores", 1), ("threads", 1)] {
        default(vmi, &format!("/spec/domain/cpu/{part}"), || json!(count));
    }
}

/// Guest memory and request follow from each other.
fn complete_memory(vmi: &mut Value) -> Result<(), String> {
    let requested = ["requests", "limits"].iter().find_map(|kind| {
        let memory = &vmi["spec"]["domain"]["resources"][kind]["memory"];
        (!memory.is_null()).then(|| memory.clone())
    });
    let guest = vmi["spec"]["domain"]["memory"]["guest"].clone();
    let memory = match (guest, requested) {
        (Value::Null, None) => match &vmi["spec"]["domain"]["memory"]["hugepages"]["pageSize"] {
            Value::Null => return Err("spec.domain.memory.guest: missing; e.g. 512Mi".into()),
            page => page.clone(),
        },
        (Value::Null, Some(requested)) => requested,
        (guest, _) => guest,
    };
    default(vmi, "/spec/domain/memory/guest", || memory.clone());
    default(vmi, "/spec/domain/resources/requests/memory", || memory);
    Ok(())
}

/// A volume without a disk gets one; a disk without a target or bus gets the architecture's.
fn complete_disks(vmi: &mut Value, architecture: &str) {
    let names: Vec<Value> = array(vmi, "/spec/volumes")
        .iter()
        .map(|volume| volume["name"].clone())
        .collect();
    let filesystems: Vec<Value> = array(vmi, "/spec/domain/devices/filesystems")
        .iter()
        .map(|fs| fs["name"].clone())
        .collect();
    let mut disks = array(vmi, "/spec/domain/devices/disks");
    for name in names {
        if !disks
            .iter()
            .chain(&filesystems_as_disks(&filesystems))
            .any(|disk| disk["name"] == name)
        {
            disks.push(json!({"name": name}));
        }
    }
    let bus = if architecture == "amd64" {
        "sata"
    } else {
        "virtio"
    };
    for disk in &mut disks {
        if ["disk", "lun", "cdrom"]
            .iter()
            .all(|kind| disk[*kind].is_null())
        {
            disk["disk"] = json!({});
        }
        for kind in ["disk", "lun", "cdrom"] {
            if disk[kind].is_object() {
                default(disk, &format!("/{kind}/bus"), || json!(bus));
            }
        }
        remove_nulls(disk);
    }
    if !disks.is_empty() {
        default(vmi, "/spec/domain/devices", || json!({}));
        vmi["spec"]["domain"]["devices"]["disks"] = disks.into();
    }
}

fn filesystems_as_disks(names: &[Value]) -> Vec<Value> {
    names.iter().map(|name| json!({"name": name})).collect()
}

/// A VMI that says nothing of networks is on the pod's, and its launcher is not root.
fn complete_for_a_cluster(vmi: &mut Value) {
    default(vmi, "/status/runtimeUser", || json!(107));
    let is_wanted = vmi["spec"]["domain"]["devices"]["autoattachPodInterface"] != false;
    if is_wanted
        && array(vmi, "/spec/networks").is_empty()
        && array(vmi, "/spec/domain/devices/interfaces").is_empty()
    {
        default(vmi, "/spec/domain/devices", || json!({}));
        vmi["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "default", "bridge": {}}]);
        vmi["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    }
}

/// virt-handler sends a status in which every permanent volume is named.
fn complete_status(vmi: &mut Value) {
    default(vmi, "/status/phase", || json!("Scheduled"));
    let mut known = array(vmi, "/status/volumeStatus");
    for volume in array(vmi, "/spec/volumes") {
        if !known.iter().any(|status| status["name"] == volume["name"]) {
            known.push(json!({"name": volume["name"], "target": ""}));
        }
    }
    vmi["status"]["volumeStatus"] = known.into();
}

fn array(value: &Value, pointer: &str) -> Vec<Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

/// Sets the member at `pointer` unless it is there; objects on the way are made.
fn default(value: &mut Value, pointer: &str, make: impl FnOnce() -> Value) {
    let mut here = value;
    for key in pointer.split('/').skip(1) {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[key];
    }
    if here.is_null() {
        *here = make();
    }
}

fn remove_nulls(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
}

fn machine(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "virt",
        "s390x" => "s390-ccw-virtio",
        _ => "q35",
    }
}

/// The architecture of this machine, as Kubernetes spells it.
#[must_use]
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn random_uuid() -> String {
    // The kernel's own generator; only a /proc that is not mounted makes it unreadable.
    std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_or_else(
        |_| "00000000-0000-4000-8000-000000000001".into(),
        |id| id.trim().into(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VM: &str = "
kind: VirtualMachine
metadata: {name: web}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      domain:
        memory: {guest: 256Mi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
      volumes:
      - {name: root, containerDisk: {image: x}}
      - {name: data, emptyDisk: {capacity: 1Gi}}
";

    #[test]
    fn a_vm_becomes_the_vmi_a_cluster_would_make() {
        let vmi = Manifest::parse(VM).unwrap();
        assert_eq!(vmi.text("/metadata/name"), "web");
        assert_eq!(vmi.text("/metadata/namespace"), "default");
        assert_eq!(vmi.text("/metadata/labels/app"), "web");
        assert_eq!(vmi.text("/spec/domain/resources/requests/memory"), "256Mi");
        assert_eq!(vmi.text("/metadata/uid").len(), 36);
    }

    #[test]
    fn a_volume_without_a_disk_gets_one_and_a_status() {
        let vmi = Manifest::parse(VM).unwrap();
        let disks = vmi.value()["spec"]["domain"]["devices"]["disks"]
            .as_array()
            .unwrap();
        assert_eq!(disks.len(), 2);
        assert_eq!(disks[0], json!({"name": "root", "disk": {"bus": "virtio"}}));
        assert_eq!(disks[1]["name"], "data");
        assert_eq!(
            vmi.value()["status"]["volumeStatus"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn memory_comes_from_the_request_if_the_guest_names_none() {
        let text = "{\"kind\":\"VirtualMachineInstance\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"domain\":{\"resources\":{\"requests\":{\"memory\":\"1Gi\"}}}}}";
        assert_eq!(
            Manifest::parse(text)
                .unwrap()
                .text("/spec/domain/memory/guest"),
            "1Gi"
        );
    }

    #[test]
    fn a_later_version_is_of_the_same_vm() {
        let (mut later, sent) = (Manifest::parse(VM).unwrap(), Manifest::parse(VM).unwrap());
        later.take_the_place_of(sent.value()).unwrap();
        assert_eq!(later.text("/metadata/uid"), sent.text("/metadata/uid"));
        let other = Manifest::parse(&VM.replace("name: web}", "name: db}")).unwrap();
        assert_eq!(
            later.take_the_place_of(other.value()).unwrap_err(),
            "metadata.name: \"web\", but the VM that runs has \"db\""
        );
    }

    #[test]
    fn cpus_that_are_asked_for_are_sockets() {
        let sockets = |domain: &str| {
            let text = format!(
                "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec: {{domain: {{memory: {{guest: 1Gi}}, {domain}}}}}"
            );
            Manifest::parse(&text).unwrap().value()["spec"]["domain"]["cpu"]["sockets"].clone()
        };
        assert_eq!(sockets("resources: {requests: {cpu: 2}}"), 2);
        assert_eq!(
            sockets("resources: {requests: {cpu: 1}, limits: {cpu: 2500m}}"),
            3
        );
        assert_eq!(
            sockets("cpu: {cores: 2}, resources: {requests: {cpu: 2}}"),
            1
        );
        assert_eq!(sockets("resources: {}"), 1);
    }

    #[test]
    fn a_member_of_a_wrong_type_is_named() {
        let error = |from, to| Manifest::parse(&VM.replace(from, to)).unwrap_err();
        let cores = error(
            "memory: {guest: 256Mi}",
            "memory: {guest: 256Mi}\n        cpu: {cores: two}",
        );
        assert!(cores.starts_with("spec.domain.cpu.cores: "), "{cores}");
        let bus = error("bus: virtio", "bus: [virtio]");
        assert!(
            bus.starts_with("spec.domain.devices.disks[0].disk.bus"),
            "{bus}"
        );
    }

    #[test]
    fn a_name_is_one_of_kubernetes() {
        for name in [
            "a/../../b",
            "..",
            "Upper",
            "-a",
            "a-",
            "ünï",
            &"a".repeat(64),
        ] {
            let error = Manifest::parse(&VM.replace("name: web}", &format!("name: {name:?}}}")))
                .unwrap_err();
            assert!(error.starts_with("metadata.name"), "{name}: {error}");
        }
    }

    #[test]
    fn offline_a_vmi_for_a_context_stays_as_it_is() {
        let vmi = r#"{"metadata": {"name": "a", "namespace": "b"}, "spec": {"domain": {}, "volumes": [{"name": "c"}]}}"#;
        assert_eq!(
            offline(vmi, true).unwrap().0,
            serde_json::from_str::<Value>(vmi).unwrap()
        );
        assert!(
            offline(vmi, false)
                .unwrap_err()
                .starts_with("spec.domain.memory.guest")
        );
        assert_eq!(offline(VM, true).unwrap().0["metadata"]["name"], "web");
        assert!(
            offline(VM, false).unwrap().0["metadata"]["uid"].is_null(),
            "the same each time"
        );
        assert!(
            offline("kind: Pod\nmetadata: {name: a}", true)
                .unwrap_err()
                .starts_with("kind: \"Pod\"")
        );
    }

    #[test]
    fn what_is_no_vm_is_refused_by_its_kind() {
        assert!(
            Manifest::parse("kind: Pod\nmetadata: {name: a}")
                .unwrap_err()
                .starts_with("kind: \"Pod\"")
        );
        assert!(
            Manifest::parse("metadata: {}")
                .unwrap_err()
                .starts_with("kind: missing")
        );
        assert!(
            Manifest::parse("kind: VirtualMachineInstance")
                .unwrap_err()
                .starts_with("metadata.name")
        );
        let no_memory = "kind: VirtualMachineInstance\nmetadata: {name: a}";
        assert!(
            Manifest::parse(no_memory)
                .unwrap_err()
                .starts_with("spec.domain.memory.guest")
        );
        assert!(Manifest::parse("{\"kind\": ").is_err());
    }
}
