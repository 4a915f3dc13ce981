//! Finds the VM among a file's documents: a manifest may have others beside it, as `kubectl apply`
//! allows.

use serde_json::{Value, json};
use uuid::Uuid;

use super::error::{FieldError, ManifestError};
use super::paths::{CLUSTER_PARTS, pointer};
use super::yaml_error::YamlError;
use crate::json::{copy_at, is_object_at, list_at, set, set_default, text_at};

pub const VMI: &str = "VirtualMachineInstance";
pub const VM: &str = "VirtualMachine";
/// The namespace of the firmware UUIDs that virt-controller makes from the names of VMs without
/// one. The guest of a VM has to be the same machine at each start: cloud-init goes by it.
const FIRMWARE_UUIDS: Uuid = Uuid::from_u128(0x6a1a24a1_4061_4607_8bf4_a3963d0c5895);
/// The kinds that describe a VM.
pub const KINDS: [&str; 2] = [VMI, VM];

/// The documents of a text, as JSON or YAML; a List's items count as documents.
///
/// # Errors
/// It is neither.
pub fn read(text: &str) -> Result<Vec<Value>, ManifestError> {
    let yaml = || serde_saphyr::from_multiple(text).map_err(YamlError::from);
    let documents: Vec<Value> = match api::json::from_slice(text.as_bytes()) {
        Ok(document) => vec![document],
        // It has too many values.
        Err(error) if error.is_data() => return Err(ManifestError::Json(error)),
        Err(_) => yaml()?,
    };
    let documents = documents.into_iter().flat_map(items);
    Ok(documents.filter(|document| !document.is_null()).collect())
}

fn items(document: Value) -> Vec<Value> {
    match document.pointer("/items").and_then(Value::as_array) {
        Some(items) if text_at(&document, "/kind").ends_with("List") => items.clone(),
        _ => vec![document],
    }
}

pub fn is_vm(document: &Value) -> bool {
    KINDS.contains(&text_at(document, "/kind"))
}

/// The only VMI or VM among the documents, as a VMI.
///
/// # Errors
/// There is none, or more than one.
pub fn the_vmi(documents: Vec<Value>) -> Result<Value, ManifestError> {
    const EXPECTED: &str = "a VirtualMachineInstance or a VirtualMachine is expected";
    if documents.is_empty() {
        let message = format!("the file is empty; {EXPECTED}");
        return Err(ManifestError::File(message));
    }
    let (vms, others): (Vec<Value>, Vec<Value>) = documents.into_iter().partition(is_vm);
    match <[Value; 1]>::try_from(vms) {
        Ok([vm]) => return Ok(into_vmi(vm)?),
        Err(vms) if vms.is_empty() => {}
        Err(vms) => {
            let count = vms.len();
            let message = format!("it has {count} virtual machines; put each into its own file");
            return Err(ManifestError::File(message));
        }
    }
    let kinds = others.iter().map(|other| text_at(other, "/kind"));
    let kinds = kinds.filter(|kind| !kind.is_empty());
    let kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
    let message = match kinds.join(", ").as_str() {
        "" => format!("missing; {EXPECTED}"),
        kinds => format!("{kinds}: {EXPECTED}"),
    };
    Err(FieldError::new("kind", message).into())
}

/// The other documents, and the DataVolumes of a VM's templates.
pub fn others(documents: &[Value]) -> Vec<Value> {
    let (vms, others): (Vec<_>, Vec<_>) = documents.iter().partition(|it| is_vm(it));
    let templates = vms
        .into_iter()
        .flat_map(|vm| list_at(vm, "/spec/dataVolumeTemplates"));
    let templates = templates.cloned().map(|mut data_volume| {
        set(&mut data_volume, "/kind", json!("DataVolume"));
        data_volume
    });
    others.into_iter().cloned().chain(templates).collect()
}

/// Refuses an instance type and a preference, which change most of the VM.
fn check_cluster_parts(vm: &Value) -> Result<(), FieldError> {
    let mut parts = CLUSTER_PARTS.iter();
    let Some(field) = parts.find(|field| is_object_at(vm, &pointer(field))) else {
        return Ok(());
    };
    let name = text_at(vm, &format!("{}/name", pointer(field)));
    let message = format!(
        "only a cluster applies {name:?}: take what it makes of the VM, by virtctl expand -f FILE, or by kubectl get vmi NAME -o yaml while it runs"
    );
    Err(FieldError::new(*field, message))
}

/// Removes the volume of a memory dump that is over, as virt-controller does at a VM's start.
fn leave_out_ended_dump(vm: &Value, spec: &mut Value) {
    let request = copy_at(vm, "/status/memoryDumpRequest");
    if ["Unmounting", "Completed", "Dissociating"].contains(&text_at(&request, "/phase")) {
        let claim = text_at(&request, "/claimName");
        let is_dump = |it: &Value| text_at(it, "/memoryDump/claimName") == claim;
        if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
            volumes.retain(|volume| !is_dump(volume));
        }
    }
}

/// Turns a VM's template into the VMI that a cluster would make of it.
///
/// # Errors
/// It has none, or needs an instance type or preference of the cluster.
pub fn into_vmi(value: Value) -> Result<Value, FieldError> {
    if text_at(&value, "/kind") == VMI {
        return Ok(value);
    }
    check_cluster_parts(&value)?;
    let template = value
        .pointer("/spec/template")
        .ok_or_else(|| FieldError::new("spec.template", "missing; a VirtualMachine needs one"))?;
    let (mut metadata, mut vmi_spec) = (copy_at(template, "/metadata"), copy_at(template, "/spec"));
    for field in ["/name", "/namespace"] {
        match text_at(&value, &format!("/metadata{field}")) {
            "" => {}
            text => set(&mut metadata, field, text.into()),
        }
    }
    leave_out_ended_dump(&value, &mut vmi_spec);
    let uuid = Uuid::new_v5(&FIRMWARE_UUIDS, text_at(&metadata, "/name").as_bytes());
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": VMI,
        "metadata": metadata,
        "spec": vmi_spec,
    });
    let firmware = copy_at(&vmi, "/spec/domain/firmware");
    // What has the wrong type is refused later.
    if is_object_at(&vmi, "/spec/domain") && (firmware.is_null() || firmware.is_object()) {
        set_default(&mut vmi, "/spec/domain/firmware/uuid", uuid.to_string());
    }
    Ok(vmi)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<String, String> {
        let vmi = read(text).and_then(the_vmi);
        vmi.map(|vmi| text_at(&vmi, "/metadata/name").to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_vm_is_the_same_machine_at_each_start() {
        let uuid = |vm: &str| {
            let vmi = read(vm).and_then(the_vmi).unwrap();
            text_at(&vmi, "/spec/domain/firmware/uuid").to_owned()
        };
        let vm =
            "kind: VirtualMachine\nmetadata: {name: web}\nspec: {template: {spec: {domain: {}}}}\n";
        // Python: uuid.uuid5(uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "web")
        assert_eq!(uuid(vm), "d32ff544-f682-571b-8677-3762f07ab8a4");
        let given = "{firmware: {uuid: 01234567-89ab-cdef-0123-456789abcdef}}";
        assert!(
            uuid(&vm.replace("domain: {}", &format!("domain: {given}"))).starts_with("01234567")
        );
        assert_eq!(
            uuid(&vm.replace("domain: {}", "domain: {firmware: no}")),
            ""
        );
        let vmi = "kind: VirtualMachineInstance\nmetadata: {name: web}\nspec: {domain: {}}\n";
        assert_eq!(uuid(vmi), "");
    }

    #[test]
    fn the_vm_is_found_among_what_it_comes_with() {
        let vm = "kind: VirtualMachine\nmetadata: {name: web}\nspec: {template: {}}\n";
        let map = "kind: ConfigMap\nmetadata: {name: script}\n";
        assert_eq!(name(vm).unwrap(), "web");
        assert_eq!(name(&format!("---\n{map}---\n{vm}---\n")).unwrap(), "web");
        let json = r#"{"kind": "VirtualMachineInstance", "metadata": {"name": "j"}}"#;
        assert_eq!(
            name(&format!("{json}\n---\n{{\"kind\": \"Secret\"}}\n")).unwrap(),
            "j"
        );
        let list = r#"{"kind": "List", "items": [{"kind": "Secret"}, {"kind": "VirtualMachineInstance", "metadata": {"name": "db"}}]}"#;
        assert_eq!(name(list).unwrap(), "db");
        assert!(
            name(&format!("{vm}---\n{vm}"))
                .unwrap_err()
                .contains("2 virtual machines")
        );
        assert!(name(map).unwrap_err().starts_with("kind: \"ConfigMap\": "));
        for empty in ["", "---\n", "# later\n"] {
            let error = name(empty).unwrap_err();
            assert!(error.starts_with("the file is empty"), "{error}");
        }
        assert!(name("text").unwrap_err().starts_with("kind: missing"));
    }
}
