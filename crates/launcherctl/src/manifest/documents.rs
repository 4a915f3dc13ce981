//! Finds the VM among a file's documents: a manifest may have others beside it, as `kubectl apply`
//! allows.

use serde_json::{Value, json};

use super::error::ManifestError;
use super::yaml_error::YamlError;
use crate::json::{copy_at, is_object_at, list_at, set, text_at};

pub const VMI: &str = "VirtualMachineInstance";
const VM: &str = "VirtualMachine";
/// The kinds that describe a VM.
pub const KINDS: [&str; 2] = [VMI, VM];

/// How to treat a field that occurs twice in an object of a YAML text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeated {
    /// Refuse the text.
    Refuse,
    /// Use the last one: to find what else is wrong with a refused text.
    Last,
}

impl Repeated {
    /// For the YAML parser.
    #[must_use]
    pub fn options(self) -> serde_saphyr::Options {
        match self {
            Self::Refuse => serde_saphyr::Options::default(),
            Self::Last => serde_saphyr::options! {
                duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            },
        }
    }
}

/// The documents of a text, as JSON or YAML; a List's items count as documents.
///
/// # Errors
/// It is neither.
pub fn read(text: &str) -> Result<Vec<Value>, ManifestError> {
    read_with(text, Repeated::Refuse)
}

/// Like [`read`], with a choice about repeated fields.
///
/// # Errors
/// Those of [`read`].
pub fn read_with(text: &str, repeated: Repeated) -> Result<Vec<Value>, ManifestError> {
    let yaml = || -> Result<Vec<Value>, ManifestError> {
        serde_saphyr::from_multiple_with_options(text, repeated.options())
            .map_err(|error| ManifestError::Yaml(YamlError::new(error, text)))
    };
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(document) => vec![document],
            // JSON documents with --- between them are YAML.
            Err(error) => yaml().map_err(|_| ManifestError::Json(error))?,
        }
    } else {
        yaml()?
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
/// There is none, or more than one.
pub fn the_vmi(documents: Vec<Value>) -> Result<Value, ManifestError> {
    if documents.is_empty() {
        return Err(ManifestError::Empty);
    }
    let kinds: Vec<String> = documents
        .iter()
        .map(|document| text_at(document, "/kind"))
        .filter(|kind| !kind.is_empty())
        .map(|kind| format!("{kind:?}"))
        .collect();
    let mut vms: Vec<Value> = documents
        .into_iter()
        .filter(|document| KINDS.contains(&text_at(document, "/kind")))
        .collect();
    match (vms.pop(), vms.len()) {
        (Some(vm), 0) => into_vmi(vm),
        (Some(_), others) => Err(ManifestError::SeveralVms(others + 1)),
        (None, _) if kinds.is_empty() => Err(ManifestError::NoKind),
        (None, _) => Err(ManifestError::OtherKinds(kinds.join(", "))),
    }
}

/// The other documents, and the DataVolumes of a VM's templates.
pub fn others(documents: &[Value]) -> Vec<Value> {
    let is_vm = |document: &&Value| KINDS.contains(&text_at(document, "/kind"));
    let templates = documents.iter().filter(is_vm).flat_map(|vm| {
        let templates = list_at(vm, "/spec/dataVolumeTemplates").iter();
        templates.map(|template| {
            let mut data_volume = template.clone();
            set(&mut data_volume, "/kind", json!("DataVolume"));
            data_volume
        })
    });
    let others = documents.iter().filter(|document| !is_vm(document));
    others.cloned().chain(templates).collect()
}

/// Turns a VM's template into the VMI that a cluster would make of it.
///
/// # Errors
/// It has none, or needs an instance type of the cluster.
pub fn into_vmi(value: Value) -> Result<Value, ManifestError> {
    if text_at(&value, "/kind") == VMI {
        return Ok(value);
    }
    if is_object_at(&value, "/spec/instancetype") {
        return Err(ManifestError::Instancetype);
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
