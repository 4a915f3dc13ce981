//! A VMI or VM manifest as a user writes it, completed to what reaches a launcher in a cluster: the
//! defaults of KubeVirt's admission (its `pkg/defaults`) and a status that names every volume.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::CtlError;

/// A VMI as JSON, complete enough for a launcher.
#[derive(Debug, Clone)]
pub struct Manifest {
    vmi: Value,
}

impl Manifest {
    /// Reads YAML or JSON; `-` is standard input.
    ///
    /// # Errors
    /// If the file cannot be read or is neither a VirtualMachineInstance nor a VirtualMachine.
    pub fn read(file: &Path) -> Result<Self, CtlError> {
        let text = super::offline::read_text(file)?;
        Self::parse(&text).map_err(|reason| CtlError::Manifest { file: file.display().to_string(), reason })
    }

    /// Reads YAML or JSON from text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| e.to_string())?
        } else {
            serde_saphyr::from_str(text).map_err(|e| e.to_string())?
        };
        let mut vmi = into_vmi(value)?;
        complete(&mut vmi)?;
        Ok(Self { vmi })
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
        self.vmi.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The names of the volumes, in order, with their definition.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Value)> {
        let volumes = self.vmi.pointer("/spec/volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        volumes.iter().map(|volume| (volume["name"].as_str().unwrap_or_default(), volume))
    }
}

/// A VM's template becomes the VMI that a cluster would make of it.
fn into_vmi(value: Value) -> Result<Value, String> {
    match value["kind"].as_str() {
        Some("VirtualMachineInstance") => Ok(value),
        Some("VirtualMachine") => {
            let template = value.pointer("/spec/template").ok_or("spec.template: a VirtualMachine needs one")?;
            let mut vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": template["spec"]});
            let mut metadata = template["metadata"].as_object().cloned().unwrap_or_default();
            for key in ["name", "namespace"] {
                if let Some(text) = value["metadata"][key].as_str() {
                    metadata.insert(key.into(), text.into());
                }
            }
            vmi["metadata"] = metadata.into();
            Ok(vmi)
        }
        Some(kind) => Err(format!("kind: {kind:?} cannot be run; a VirtualMachineInstance or a VirtualMachine can")),
        None => Err("kind: missing; a VirtualMachineInstance or a VirtualMachine is expected".into()),
    }
}

/// Fills in what admission would, without overriding what is there.
fn complete(vmi: &mut Value) -> Result<(), String> {
    if vmi["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        return Err("metadata.name: missing".into());
    }
    default(vmi, "/metadata/namespace", || json!("default"));
    default(vmi, "/metadata/uid", || json!(random_uuid()));
    default(vmi, "/spec/architecture", || json!(host_architecture()));
    let architecture = vmi["spec"]["architecture"].as_str().unwrap_or_default().to_owned();
    default(vmi, "/spec/domain/machine/type", || json!(machine(&architecture)));
    for part in ["cores", "sockets", "threads"] {
        default(vmi, &format!("/spec/domain/cpu/{part}"), || json!(1));
    }
    complete_memory(vmi)?;
    if architecture != "s390x" {
        default(vmi, "/spec/domain/features/acpi/enabled", || json!(true));
    }
    complete_disks(vmi, &architecture);
    complete_status(vmi);
    Ok(())
}

/// Guest memory and request follow from each other.
fn complete_memory(vmi: &mut Value) -> Result<(), String> {
    let requested = ["requests", "limits"].iter().find_map(|kind| {
        let memory = &vmi["spec"]["domain"]["resources"][kind]["memory"];
        (!memory.is_null()).then(|| memory.clone())
    });
    let guest = vmi["spec"]["domain"]["memory"]["guest"].clone();
    let memory = match (guest, requested) {
        (Value::Null, None) => return Err("spec.domain.memory.guest: missing; e.g. 512Mi".into()),
        (Value::Null, Some(requested)) => requested,
        (guest, _) => guest,
    };
    default(vmi, "/spec/domain/memory/guest", || memory.clone());
    default(vmi, "/spec/domain/resources/requests/memory", || memory);
    Ok(())
}

/// A volume without a disk gets one; a disk without a target or bus gets the architecture's.
fn complete_disks(vmi: &mut Value, architecture: &str) {
    let names: Vec<Value> = array(vmi, "/spec/volumes").iter().map(|volume| volume["name"].clone()).collect();
    let filesystems: Vec<Value> = array(vmi, "/spec/domain/devices/filesystems").iter().map(|fs| fs["name"].clone()).collect();
    let mut disks = array(vmi, "/spec/domain/devices/disks");
    for name in names {
        if !disks.iter().chain(&filesystems_as_disks(&filesystems)).any(|disk| disk["name"] == name) {
            disks.push(json!({"name": name}));
        }
    }
    let bus = if architecture == "amd64" { "sata" } else { "virtio" };
    for disk in &mut disks {
        if ["disk", "lun", "cdrom"].iter().all(|kind| disk[*kind].is_null()) {
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
    value.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
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
    std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_or_else(|_| "00000000-0000-4000-8000-000000000001".into(), |id| id.trim().into())
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
        let disks = vmi.value()["spec"]["domain"]["devices"]["disks"].as_array().unwrap();
        assert_eq!(disks.len(), 2);
        assert_eq!(disks[0], json!({"name": "root", "disk": {"bus": "virtio"}}));
        assert_eq!(disks[1]["name"], "data");
        assert_eq!(vmi.value()["status"]["volumeStatus"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn memory_comes_from_the_request_if_the_guest_names_none() {
        let text = "{\"kind\":\"VirtualMachineInstance\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"domain\":{\"resources\":{\"requests\":{\"memory\":\"1Gi\"}}}}}";
        assert_eq!(Manifest::parse(text).unwrap().text("/spec/domain/memory/guest"), "1Gi");
    }

    #[test]
    fn what_is_no_vm_is_refused_by_its_kind() {
        assert!(Manifest::parse("kind: Pod\nmetadata: {name: a}").unwrap_err().starts_with("kind: \"Pod\""));
        assert!(Manifest::parse("metadata: {}").unwrap_err().starts_with("kind: missing"));
        assert!(Manifest::parse("kind: VirtualMachineInstance").unwrap_err().starts_with("metadata.name"));
        let no_memory = "kind: VirtualMachineInstance\nmetadata: {name: a}";
        assert!(Manifest::parse(no_memory).unwrap_err().starts_with("spec.domain.memory.guest"));
        assert!(Manifest::parse("{\"kind\": ").is_err());
    }
}
