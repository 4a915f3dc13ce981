//! Which of a file's documents is the VM: a manifest may have others beside it, as `kubectl apply` takes them.

use serde_json::{Value, json};

use super::error::ManifestError;
use crate::ctl::json::{copy_at, set, text_at};

/// The kind of a VMI.
pub const VMI: &str = "VirtualMachineInstance";
const VM: &str = "VirtualMachine";

/// The documents of a text: one as JSON, any number as YAML; the items of a List count as documents.
///
/// # Errors
/// If it is neither.
pub fn read(text: &str) -> Result<Vec<Value>, ManifestError> {
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        vec![serde_json::from_str(text).map_err(ManifestError::Json)?]
    } else {
        serde_saphyr::from_multiple(text).map_err(ManifestError::Yaml)?
    };
    Ok(documents
        .into_iter()
        .flat_map(items)
        .filter(|document| !document.is_null())
        .collect())
}

fn items(document: Value) -> Vec<Value> {
    match document.pointer("/items").and_then(Value::as_array) {
        Some(items) if text_at(&document, "/kind").ends_with("List") => items.clone(),
        _ => vec![document],
    }
}

/// The only VMI or VM among the documents, as a VMI.
///
/// # Errors
/// If there is none, or more than one.
pub fn the_vmi(documents: Vec<Value>) -> Result<Value, ManifestError> {
    let kinds: Vec<String> = documents
        .iter()
        .map(|document| text_at(document, "/kind"))
        .filter(|kind| !kind.is_empty())
        .map(|kind| format!("{kind:?}"))
        .collect();
    let mut vms: Vec<Value> = documents
        .into_iter()
        .filter(|document| [VMI, VM].contains(&text_at(document, "/kind")))
        .collect();
    match (vms.pop(), vms.len()) {
        (Some(vm), 0) => into_vmi(vm),
        (Some(_), others) => Err(ManifestError::SeveralVms(others + 1)),
        (None, _) if kinds.is_empty() => Err(ManifestError::NoKind),
        (None, _) => Err(ManifestError::OtherKinds(kinds.join(", "))),
    }
}

/// A VM's template becomes the VMI that a cluster would make of it.
fn into_vmi(value: Value) -> Result<Value, ManifestError> {
    if text_at(&value, "/kind") == VMI {
        return Ok(value);
    }
    let template = value
        .pointer("/spec/template")
        .ok_or(ManifestError::NoTemplate)?;
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
        let list = r#"{"kind": "List", "items": [{"kind": "Secret"}, {"kind": "VirtualMachineInstance", "metadata": {"name": "db"}}]}"#;
        assert_eq!(name(list).unwrap(), "db");
        assert!(
            name(&format!("{vm}---\n{vm}"))
                .unwrap_err()
                .contains("2 virtual machines")
        );
        assert!(name(map).unwrap_err().starts_with("kind: \"ConfigMap\": "));
        assert!(name("").unwrap_err().starts_with("kind: missing"));
        assert!(name("text").unwrap_err().starts_with("kind: missing"));
    }
}
