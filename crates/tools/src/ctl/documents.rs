//! Which of a file's documents is the VM: a manifest may have others beside it, as `kubectl apply` takes them.

use serde_json::{Value, json};

const VMI: &str = "VirtualMachineInstance";
const VM: &str = "VirtualMachine";

/// The documents of a text: one as JSON, any number as YAML; the items of a List count as documents.
///
/// # Errors
/// If it is neither.
pub fn read(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        vec![serde_json::from_str(text).map_err(|e| e.to_string())?]
    } else {
        serde_saphyr::from_multiple(text).map_err(|e| e.to_string())?
    };
    Ok(documents
        .into_iter()
        .flat_map(items)
        .filter(|document| !document.is_null())
        .collect())
}

fn items(mut document: Value) -> Vec<Value> {
    match document["kind"].as_str() {
        Some(kind) if kind.ends_with("List") => match document["items"].take() {
            Value::Array(items) => items,
            _ => vec![document],
        },
        _ => vec![document],
    }
}

/// The only VMI or VM among the documents, as a VMI.
///
/// # Errors
/// If there is none, or more than one.
pub fn the_vmi(documents: Vec<Value>) -> Result<Value, String> {
    let kinds: Vec<String> = documents
        .iter()
        .filter_map(|document| document["kind"].as_str())
        .map(|kind| format!("{kind:?}"))
        .collect();
    let mut vms: Vec<Value> = documents
        .into_iter()
        .filter(|document| document["kind"] == VMI || document["kind"] == VM)
        .collect();
    match (vms.pop(), vms.len()) {
        (Some(vm), 0) => into_vmi(vm),
        (Some(_), others) => Err(format!(
            "it has {} virtual machines; give one a file of its own",
            others + 1
        )),
        (None, _) if kinds.is_empty() => {
            Err(format!("kind: missing; a {VMI} or a {VM} is expected"))
        }
        (None, _) => Err(format!(
            "kind: {}: a {VMI} or a {VM} is expected",
            kinds.join(", ")
        )),
    }
}

/// A VM's template becomes the VMI that a cluster would make of it.
fn into_vmi(value: Value) -> Result<Value, String> {
    if value["kind"] == VMI {
        return Ok(value);
    }
    let template = value
        .pointer("/spec/template")
        .ok_or("spec.template: a VirtualMachine needs one")?;
    let mut vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": VMI, "spec": template["spec"]});
    let mut metadata = template["metadata"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for key in ["name", "namespace"] {
        if let Some(text) = value["metadata"][key].as_str() {
            metadata.insert(key.into(), text.into());
        }
    }
    vmi["metadata"] = metadata.into();
    Ok(vmi)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn name(text: &str) -> Result<String, String> {
        the_vmi(read(text)?).map(|vmi| {
            vmi["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
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
