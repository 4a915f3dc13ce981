//! Finds the VM among a file's documents: a manifest may have others beside it, as `kubectl apply`
//! allows.

use serde_json::{Value, json};

use super::error::{FieldError, ManifestError};
use super::yaml_error::YamlError;
use crate::json::{copy_at, is_object_at, list_at, set, text_at};

pub const VMI: &str = "VirtualMachineInstance";
pub const VM: &str = "VirtualMachine";
/// Only a cluster knows what it gives the VM.
pub const INSTANCE_TYPE: &str = "spec.instancetype";
/// The kinds that describe a VM.
pub const KINDS: [&str; 2] = [VMI, VM];

/// The documents of a text, as JSON or YAML; a List's items count as documents.
///
/// # Errors
/// It is neither.
pub fn read(text: &str) -> Result<Vec<Value>, ManifestError> {
    let yaml = || serde_saphyr::from_multiple(text);
    let documents = if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(document) => vec![document],
            // JSON documents with --- between them are YAML.
            Err(error) => yaml().map_err(|_| ManifestError::Json(error))?,
        }
    } else {
        yaml().map_err(|error| YamlError::new(error, text))?
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

/// Turns a VM's template into the VMI that a cluster would make of it.
///
/// # Errors
/// It has none, or needs an instance type of the cluster.
pub fn into_vmi(value: Value) -> Result<Value, FieldError> {
    if text_at(&value, "/kind") == VMI {
        return Ok(value);
    }
    if is_object_at(&value, "/spec/instancetype") {
        let message = "only a cluster has instance types; virtctl expand -f FILE prints the VM with what its instance type gives it";
        return Err(FieldError::new(INSTANCE_TYPE, message));
    }
    let template = value
        .pointer("/spec/template")
        .ok_or_else(|| FieldError::new("spec.template", "missing; a VirtualMachine needs one"))?;
    let mut metadata = copy_at(template, "/metadata");
    for field in ["/name", "/namespace"] {
        match text_at(&value, &format!("/metadata{field}")) {
            "" => {}
            text => set(&mut metadata, field, text.into()),
        }
    }
    Ok(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": VMI,
        "metadata": metadata,
        "spec": copy_at(template, "/spec"),
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(text: &str) -> Result<String, String> {
        let vmi = read(text).and_then(the_vmi);
        vmi.map(|vmi| text_at(&vmi, "/metadata/name").to_owned())
            .map_err(|error| error.to_string())
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
