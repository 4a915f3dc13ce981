//! A user's VMI or VM manifest, completed to what reaches a launcher in a cluster.
//!
//! ```text
//!  YAML, JSON ─► documents ─► the VMI or VM ─► types are checked ─► defaults ─► Manifest
//! ```

pub mod cluster_only;
pub mod config_data;
pub mod context;
mod defaults;
mod documents;
pub mod drives;
mod error;
mod fields;
pub mod hook_sidecars;
mod libvirt;
mod lines;
mod network;
mod origin;
mod paths;
mod problems;
mod rules;
mod type_error;
mod update;
mod yaml_error;

use serde_json::{Value, json};
use serde_path_to_error::Segment;

use api::vmi::Vmi;
pub use defaults::{is_hotpluggable, plugged_status, random_uuid};
pub use error::{FieldError, MAX_PROBLEMS, ManifestError, in_conversion, in_manifest};
pub use libvirt::{Asked, Libvirt, LibvirtAnswer, Questions};
pub use network::Card;
pub use origin::Origin;
pub use problems::{ManifestProblem, Severity, problems};
pub use rules::text::is_label;

use crate::json::{list_at, set, set_default, text_at};
use context::context_of_pod;
use type_error::type_problem;

pub const DISKS: &str = "/spec/domain/devices/disks";
const VOLUMES: &str = "/spec/volumes";
const STATUS: &str = "/status/volumeStatus";

/// A VMI as JSON, complete enough for a launcher.
#[derive(Debug, Clone)]
pub struct Manifest {
    vmi: Value,
    /// The other documents of its file.
    others: Vec<Value>,
}

impl Manifest {
    /// Reads YAML or JSON from text.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let documents = documents::read(text)?;
        let others = documents::others(&documents);
        let mut vmi = documents::the_vmi(documents)?;
        typed(&vmi)?;
        defaults::of_admission(&mut vmi)?;
        set_default(&mut vmi, "/metadata/uid", random_uuid());
        typed(&vmi)?;
        Ok(Self { vmi, others })
    }

    /// Converts the VMI as a launcher will, so that a refusal comes before anything starts.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_conversion(&self) -> Result<(), convert::ConvertError> {
        match typed(&self.vmi) {
            Ok(vmi) => convert::domain(&vmi, &context_of_pod(&vmi)).map(drop),
            // It has been parsed before.
            Err(_) => Ok(()),
        }
    }

    /// Removes what a cluster has reported of its own run of the VM: all volumes are there, those
    /// that can be unplugged as if plugged in.
    pub fn forget_status(&mut self) {
        set(&mut self.vmi, "/status", json!({}));
        defaults::default_status(&mut self.vmi);
    }

    pub fn value(&self) -> &Value {
        &self.vmi
    }

    pub fn into_value(self) -> Value {
        self.vmi
    }

    /// The file's other documents, such as Secrets, and the VM's DataVolume templates.
    pub fn others(&self) -> &[Value] {
        &self.others
    }

    /// A text inside the VMI; empty if missing.
    pub fn text(&self, pointer: &str) -> &str {
        text_at(&self.vmi, pointer)
    }

    /// The names of the volumes, in order, with their definition.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Value)> {
        let volumes = list_at(&self.vmi, VOLUMES).iter();
        volumes.map(|volume| (text_at(volume, "/name"), volume))
    }
}

/// A line for each unknown field of a manifest: a cluster silently drops it, and so do we. Limited
/// to the first ones; empty for an unreadable text.
pub fn unknown_fields(text: &str) -> Vec<String> {
    let documents = lines::YamlNode::read(text).unwrap_or_default();
    let lines = documents.iter().flat_map(|document| {
        let unknown = fields::unknown_fields(document.text("kind"), document).into_iter();
        unknown.map(|error| format!("{}: {error}", document.line_of(&error.field)))
    });
    lines.take(MAX_PROBLEMS).collect()
}

/// The VMI for a verb that starts nothing, as JSON and typed. A VM gets admission's defaults, and
/// so does a VMI unless it `is_complete`, as a launcher received it.
///
/// # Errors
/// The problem.
pub fn read_offline(text: &str, is_complete: bool) -> Result<(Value, Vmi), ManifestError> {
    let documents = documents::read(text)?;
    let mut kinds = documents.iter().map(|document| text_at(document, "/kind"));
    let is_vm = kinds.any(|kind| !["", documents::VMI].contains(&kind));
    let mut vmi = match documents.as_slice() {
        [one] if text_at(one, "/kind").is_empty() && one.is_object() => one.clone(),
        _ => documents::the_vmi(documents)?,
    };
    let mut parsed = typed(&vmi)?;
    if is_vm || !is_complete {
        defaults::of_admission(&mut vmi)?;
        defaults::of_cluster(&mut vmi);
        parsed = typed(&vmi)?;
    }
    Ok((vmi, parsed))
}

/// The documents of a text beside its VM, such as Secrets.
///
/// # Errors
/// It is neither JSON nor YAML.
pub fn other_documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    Ok(documents::others(&documents::read(text)?))
}

/// The VMI as the conversion reads it. Also called before the defaults, so that errors name what
/// the file has.
fn typed(value: &Value) -> Result<Vmi, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let found = error
            .path()
            .iter()
            .try_fold(value, |value, step| match step {
                Segment::Map { key } => value.get(key),
                Segment::Seq { index } => value.get(index),
                _ => None,
            });
        let message = type_problem(error.inner(), found.unwrap_or(&Value::Null));
        FieldError::new(error.path().to_string(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::logging::chain;

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

    fn refusal(text: &str) -> String {
        chain(&Manifest::parse(text).unwrap_err())
    }

    fn offline_refusal(text: &str, is_complete: bool) -> String {
        chain(&read_offline(text, is_complete).unwrap_err())
    }

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
    fn an_update_is_of_the_same_vm() {
        let (update, sent) = (Manifest::parse(VM).unwrap(), Manifest::parse(VM).unwrap());
        let update = update.into_update_of(sent.value()).unwrap();
        assert_eq!(update.text("/metadata/uid"), sent.text("/metadata/uid"));
        let other = Manifest::parse(&VM.replace("name: web}", "name: db}")).unwrap();
        assert_eq!(
            update
                .into_update_of(other.value())
                .unwrap_err()
                .to_string(),
            "metadata.name: \"web\", but the VM that runs has \"db\""
        );
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let error = |from, to| refusal(&VM.replace(from, to));
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

    /// Puts every type of value into every field; the result must be a manifest or an error.
    #[test]
    fn no_value_of_any_type_in_any_field_causes_a_panic() {
        fn pointers(value: &Value, here: String, all: &mut Vec<String>) {
            let keys: Vec<String> = match value {
                Value::Object(members) => members.keys().cloned().collect(),
                Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
                _ => Vec::new(),
            };
            for key in keys {
                let inner = format!("{here}/{key}");
                pointers(
                    &value.pointer(&format!("/{key}")).unwrap().clone(),
                    inner,
                    all,
                );
            }
            all.push(here);
        }
        let vm = documents::read(VM).unwrap().remove(0);
        let vmi = Manifest::parse(VM).unwrap().into_value();
        let mut tried = 0;
        for document in [vm, vmi] {
            let mut all = Vec::new();
            pointers(&document, String::new(), &mut all);
            for pointer in all {
                for value in [
                    json!(null),
                    json!("none"),
                    json!(3),
                    json!(true),
                    json!([]),
                    json!(["foo"]),
                    json!({}),
                    json!({"foo": "bar"}),
                ] {
                    let mut hostile = document.clone();
                    *hostile.pointer_mut(&pointer).unwrap() = value;
                    let text = hostile.to_string();
                    if let Ok(mut manifest) = Manifest::parse(&text) {
                        manifest.use_plugin_network();
                        manifest.strip_network();
                    }
                    let _ = read_offline(&text, false);
                    tried += 1;
                }
            }
        }
        assert!(tried > 400, "{tried}");
    }

    #[test]
    fn a_thousandth_of_memory_is_refused_with_what_was_meant() {
        let small = VM.replace("256Mi", "256m");
        let expected = "spec.domain.memory.guest: 256m is 0.256 bytes (m is a thousandth); did you mean 256M or 256Mi?";
        assert_eq!(refusal(&small), expected);
        assert_eq!(offline_refusal(&small, false), expected);
    }

    #[test]
    fn devices_of_the_wrong_type_are_refused_by_name() {
        for (devices, path) in [
            ("{disks: [foo]}", "spec.domain.devices.disks[0]"),
            ("none", "spec.domain.devices"),
        ] {
            let vmi = format!(
                "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec:\n  domain: {{memory: {{guest: 64Mi}}, devices: {devices}}}\n  volumes: [{{name: root, containerDisk: {{image: x}}}}]\n"
            );
            assert!(refusal(&vmi).starts_with(&format!("{path}: ")), "{vmi}");
            assert!(
                offline_refusal(&vmi, false).starts_with(&format!("{path}: ")),
                "{vmi}"
            );
        }
    }

    #[test]
    fn offline_a_vmi_for_a_context_stays_as_it_is() {
        let vmi = r#"{"metadata": {"name": "a", "namespace": "b"}, "spec": {"domain": {}, "volumes": [{"name": "c"}]}}"#;
        assert_eq!(
            read_offline(vmi, true).unwrap().0,
            serde_json::from_str::<Value>(vmi).unwrap()
        );
        assert!(offline_refusal(vmi, false).starts_with("spec.domain.memory.guest"));
        assert_eq!(read_offline(VM, true).unwrap().0["metadata"]["name"], "web");
        assert!(
            read_offline(VM, false).unwrap().0["metadata"]["uid"].is_null(),
            "the same every time"
        );
        assert!(
            offline_refusal("kind: Pod\nmetadata: {name: a}", true).starts_with("kind: \"Pod\"")
        );
    }

    #[test]
    fn what_is_not_a_vm_is_refused_by_its_kind() {
        assert!(refusal("kind: Pod\nmetadata: {name: a}").starts_with("kind: \"Pod\""));
        assert!(refusal("metadata: {}").starts_with("kind: missing"));
        assert!(refusal("kind: VirtualMachineInstance").starts_with("metadata.name"));
        let no_memory = "kind: VirtualMachineInstance\nmetadata: {name: a}";
        assert!(refusal(no_memory).starts_with("spec.domain.memory.guest"));
    }
}
