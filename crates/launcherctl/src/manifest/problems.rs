//! Finds all problems of a manifest at once, for `launcherctl check`.
//!
//! ```text
//!  text ─► documents ─► kind ─► unknown fields ─► types ─► rules of admission ─► its defaults ─► conversion
//! ```
//!
//! Each problem is reported and removed from a copy, and the rest is checked.

use serde::Serialize;
use serde_json::{Value, json};
use serde_saphyr::DuplicateKeyPolicy;

use super::cluster_only;
use super::config_data::{self, ConfigData, Reference, references};
use super::documents::{self, TEMPLATES};
use super::error::{FieldError, MAX_PROBLEMS};
use super::fields::unknown_fields;
use super::hook_sidecars::{ConfigMapScript, annotation, of_annotation};
use super::kind::meant_kind;
use super::libvirt::{Questions, depends_on_machine};
use super::lines::Node;
use super::paths::{CLUSTER_PARTS, is_related, pointer};
use super::refusals::{clear, clear_parent, refusals};
use super::rules::{violations, violations_of_data_volume, violations_of_vm};
use super::{defaults, typed};
use crate::json::{copy_at, set, text_at};
use api::vmi::HOOK_SIDECARS;
use os::logging::chain;

/// Limit of the converted bytes: a VMI is converted repeatedly to find all its refusals.
const MAX_CONVERTED_BYTES: usize = 8 << 20;
/// Limit of the wrongly typed fields searched for in a document.
const MAX_WRONG_TYPES: usize = 100;
/// The versions of KubeVirt's API.
const API_VERSIONS: [&str; 2] = ["kubevirt.io/v1", "kubevirt.io/v1alpha3"];

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// A cluster refuses the manifest, or drops a part of it.
    Error,
    /// It is valid, but not all of it can be checked here.
    Note,
}

/// A problem of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub severity: Severity,
    /// Line of the file, from 1.
    pub line: u64,
    /// Path of the field in the file; empty for the whole file.
    pub field: String,
    /// The problem and the remedy.
    pub message: String,
}

impl Problem {
    /// A problem of the whole file.
    pub fn of_file(line: u64, message: String) -> Self {
        Self {
            severity: Severity::Error,
            line,
            field: String::new(),
            message,
        }
    }

    fn into_note(mut self) -> Self {
        self.severity = Severity::Note;
        self
    }

    /// A problem of a document's field.
    fn of_field(document: &Node, error: FieldError) -> Self {
        let line = document.line_of(&error.field);
        Self {
            field: error.field,
            ..Self::of_file(line, error.message)
        }
    }
}

/// The problems of all VMs and VMIs of a text, by line: at most [`MAX_PROBLEMS`], and a note if
/// there are more. libvirt is asked, where questions are given, about those without an error.
pub fn problems(text: &str, libvirt: Option<&Questions<'_>>) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut documents = Node::read(text);
    if let Err(error) = &documents
        && error.is_repeated_field
    {
        found.push(Problem::of_file(error.line, error.message.clone()));
        documents = Node::read_with(text, DuplicateKeyPolicy::LastWins);
    }
    let documents = match documents {
        Ok(documents) => documents,
        Err(error) => {
            let message = format!("invalid YAML: {}", error.message);
            found.push(Problem::of_file(error.line, message));
            return found;
        }
    };
    let vms = documents.iter();
    let vms = vms.filter_map(|node| Some((node, meant_kind(node)?)));
    let vms: Vec<_> = vms.collect();
    let of_templates = documents.iter().flat_map(|node| of_template(node, libvirt));
    let of_templates: Vec<Problem> = of_templates.collect();
    let is_unknown = |node: &&Node| {
        config_data::Kind::of_document(&node.value()).is_none()
            && template(node).is_none()
            && meant_kind(node).is_none()
            && node.text("kind") != "DataVolume"
    };
    if documents.iter().any(|node| !node.text("kind").is_empty()) {
        found.extend(documents.iter().filter(is_unknown).map(not_checked));
    } else if vms.is_empty() {
        let line = documents.first().map_or(1, |node| node.line_of("kind"));
        let error = documents::the_vmi(documents.iter().map(Node::value).collect()).err();
        found.extend(error.map(|error| Problem::of_file(line, chain(&error))));
    }
    if let Some((second, _)) = vms.get(1) {
        let message = "run takes one virtual machine: put each into a file of its own";
        let error = FieldError::new("kind", message);
        found.push(Problem::of_field(second, error).into_note());
    }
    let values = documents.iter().map(Node::value);
    let data = values.filter_map(|value| config_data::of_document(&value).ok()?);
    let data: ConfigData = data.collect();
    found.extend(
        documents
            .iter()
            .filter_map(|node| other_namespace(node, vms.first()?.0)),
    );
    let vms = vms.into_iter();
    let of_vms = vms.flat_map(|(node, (kind, misfit))| {
        let missing = missing_keys(node, kind, &data);
        of_document(node, kind, misfit, libvirt)
            .into_iter()
            .chain(missing)
    });
    let of_others = documents.iter().flat_map(of_other);
    let of_vms = of_vms.chain(of_templates);
    found.extend(of_vms.chain(of_others).take(MAX_PROBLEMS + 1));
    found.sort_by_key(|problem| problem.line);
    if found.len() > MAX_PROBLEMS {
        found.truncate(MAX_PROBLEMS);
        let line = found.last().map_or(1, |problem| problem.line);
        let message = format!("there are more than {MAX_PROBLEMS} problems; mend these first");
        found.push(Problem::of_file(line, message).into_note());
    }
    found
}

/// A ConfigMap or Secret that a cluster's VM does not find, as it is in another namespace. A
/// namespace that is not given is kubectl's.
fn other_namespace(node: &Node, vm: &Node) -> Option<Problem> {
    let kind = config_data::Kind::of_document(&node.value())?;
    let of = |node: &Node| text_at(&node.value(), "/metadata/namespace").to_owned();
    let (own, of_vm) = (of(node), of(vm));
    let shown = |namespace: &str| match namespace {
        "" => "kubectl's namespace".to_owned(),
        namespace => format!("the namespace {namespace:?}"),
    };
    let message = format!(
        "the VM, in {}, finds no {kind} in {}",
        shown(&of_vm),
        shown(&own)
    );
    let problem = Problem::of_field(node, FieldError::new("metadata.namespace", message));
    match own == of_vm {
        true => None,
        false if own.is_empty() || of_vm.is_empty() => Some(problem.into_note()),
        false => Some(problem),
    }
}

/// The problems of a ConfigMap, Secret or DataVolume.
fn of_other(node: &Node) -> Vec<Problem> {
    let value = node.value();
    let found: Vec<FieldError> = match node.text("kind") {
        "DataVolume" => violations_of_data_volume(&value).collect(),
        _ => config_data::document_problems(&value),
    };
    let found = found.into_iter();
    found.map(|error| Problem::of_field(node, error)).collect()
}

/// A note about a document of another kind.
fn not_checked(node: &Node) -> Problem {
    let message = format!(
        "{:?} is not read, neither by check nor by run; they read virtual machines, DataVolumes, ConfigMaps and Secrets, and check also pools and replica sets",
        node.text("kind")
    );
    Problem::of_field(node, FieldError::new("kind", message)).into_note()
}

/// The path and kind of the template of a pool or replica set.
fn template(node: &Node) -> Option<(&'static str, &'static str)> {
    let mut kinds = TEMPLATES.iter();
    kinds.find_map(|(kind, path, of)| (*kind == node.text("kind")).then_some((*path, *of)))
}

/// The problems in the template of a pool or replica set, whose VMs get their names later.
fn of_template(node: &Node, libvirt: Option<&Questions<'_>>) -> Vec<Problem> {
    let Some((path, kind)) = template(node) else {
        return Vec::new();
    };
    let Some(vm) = node.find(path) else {
        let error = FieldError::new(path, "missing");
        return vec![Problem::of_field(node, error)];
    };
    let mut found = of_document(vm, kind, None, libvirt);
    found.retain(|problem| problem.field != "metadata.name");
    for problem in &mut found {
        problem.field.insert_str(0, &format!("{path}."));
    }
    let message = format!("run refuses it: it takes one VM, such as {path} in a file of its own");
    let error = FieldError::new("kind", message);
    found.push(Problem::of_field(node, error).into_note());
    found
}

/// The problems of a VM or VMI; `misfit` is the field that does not fit its kind.
fn of_document(
    node: &Node,
    kind: &str,
    misfit: Option<FieldError>,
    libvirt: Option<&Questions<'_>>,
) -> Vec<Problem> {
    let is_vmi = kind == documents::VMI;
    let problem = |error| Problem::of_field(node, error);
    let mut found = Vec::new();
    let is_other_kind = misfit
        .as_ref()
        .is_some_and(|it| it.field.starts_with("spec."));
    for unknown in unknown_fields(kind, node) {
        // In a document of the other kind, most fields of the spec are unknown.
        if !is_other_kind || unknown.field.split('.').count() != 2 {
            found.push(problem(unknown));
        }
    }
    found.extend(misfit.map(problem));
    let mut value = node.value();
    let version = text_at(&value, "/apiVersion");
    if !version.is_empty() && !API_VERSIONS.contains(&version) {
        let message =
            format!("{version:?} is not a version of KubeVirt's; expected kubevirt.io/v1");
        found.push(problem(FieldError::new("apiVersion", message)));
    }
    if !is_vmi {
        found.extend(violations_of_vm(&value).map(problem));
    }
    set(&mut value, "/kind", json!(kind));
    let in_vmi = |error| problem(if is_vmi { error } else { in_template(error) });
    match documents::into_vmi(value) {
        Ok(mut vmi) => {
            let notes = cluster_only::notes(&vmi).into_iter().map(in_vmi);
            let notes: Vec<Problem> = notes.map(Problem::into_note).collect();
            let errors = of_vmi(&mut vmi);
            let asked = libvirt.filter(|_| errors.is_empty());
            found.extend(errors.into_iter().map(in_vmi));
            let refusals = asked.map(|libvirt| libvirt.refusals(vmi));
            found.extend(refusals.into_iter().flatten().map(|error| {
                match depends_on_machine(&error.field) {
                    true => in_vmi(error).into_note(),
                    false => in_vmi(error),
                }
            }));
            // What follows from an error is no news.
            let errors = found.clone();
            let is_known =
                |note: &Problem| errors.iter().any(|it| is_related(&it.field, &note.field));
            found.extend(notes.into_iter().filter(|note| !is_known(note)));
        }
        Err(mut error) => {
            let is_note = CLUSTER_PARTS.iter().any(|(part, _)| *part == error.field);
            found.push(if is_note {
                error.message.insert_str(0, "run refuses it: ");
                problem(error).into_note()
            } else {
                problem(error)
            });
        }
    }
    found
}

/// What a VM or VMI wants of the ConfigMaps and Secrets beside it, and they do not have.
fn missing_keys(node: &Node, kind: &str, data: &ConfigData) -> Vec<Problem> {
    let mut value = node.value();
    set(&mut value, "/kind", json!(kind));
    let Ok(vmi) = documents::into_vmi(value) else {
        return Vec::new();
    };
    let is_beside = |it: &Reference<'_>| data.contains_key(&(it.kind, it.name.to_owned()));
    let sidecars = of_annotation(annotation(&vmi)).unwrap_or_default();
    let scripts = sidecars.iter().filter_map(|it| it.config_map.as_ref());
    let found = references(&vmi).into_iter();
    let found = found.chain(scripts.map(of_script)).filter(is_beside);
    let errors = found.filter_map(|reference| reference.files(data).err());
    let errors = errors.map(|error| match kind {
        documents::VMI => error,
        _ => in_template(error),
    });
    errors.map(|error| Problem::of_field(node, error)).collect()
}

fn of_script(script: &ConfigMapScript) -> Reference<'_> {
    Reference {
        field: format!("metadata.annotations[{HOOK_SIDECARS}]"),
        kind: config_data::Kind::ConfigMap,
        name: &script.name,
        is_optional: false,
        keys: vec![&script.key],
        place: String::new(),
    }
}

/// A VMI's problem, in the VirtualMachine with its template. Name and namespace are the VM's.
fn in_template(mut error: FieldError) -> FieldError {
    let fields = ["spec.", "metadata.labels", "metadata.annotations"];
    if fields.iter().any(|field| error.field.starts_with(field)) {
        error.field.insert_str(0, "spec.template.");
    }
    error
}

/// The refused values of a VMI. Without any, it has admission's and the cluster's defaults then.
fn of_vmi(vmi: &mut Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    for _ in 0..MAX_WRONG_TYPES {
        let Err(error) = typed(vmi) else { break };
        let is_cleared = clear(vmi, &error.field) || clear_parent(vmi, &error.field, &[]);
        add_unless_related(&mut found, error);
        if !is_cleared {
            return found;
        }
    }
    let wrong_types = found.clone();
    for violation in violations(vmi) {
        // More are not shown.
        if found.len() > MAX_PROBLEMS {
            return found;
        }
        let field = &violation.field;
        if !wrong_types
            .iter()
            .any(|wrong| is_related(&wrong.field, field))
            && !found.iter().any(|other| other.field == *field)
        {
            found.push(violation);
        }
    }
    // A volume without a source is there all the same.
    for volume in found.iter().filter(|it| is_volume(&it.field)) {
        let source = format!("{}/emptyDisk", pointer(&volume.field));
        set(vmi, &source, json!({"capacity": "1Gi"}));
    }
    while let Err(error) = defaults::of_admission(vmi) {
        let mended = match &*error.field {
            "metadata.name" => json!("check"),
            "spec.architecture" => Value::Null,
            _of_memory => json!("64Mi"),
        };
        let pointer = pointer(&error.field);
        add_unless_related(&mut found, error);
        if copy_at(vmi, &pointer) == mended {
            return found;
        }
        set(vmi, &pointer, mended);
    }
    defaults::of_cluster(vmi);
    let bytes = vmi.to_string().len().max(1);
    for refusal in refusals(vmi.clone(), MAX_CONVERTED_BYTES / bytes) {
        add_unless_related(&mut found, refusal);
    }
    found
}

/// Whether the path ends at a volume.
fn is_volume(field: &str) -> bool {
    field.starts_with("spec.volumes[") && field.ends_with(']')
}

/// Adds a problem that is no possible consequence of an earlier one.
fn add_unless_related(found: &mut Vec<FieldError>, error: FieldError) {
    if !found
        .iter()
        .any(|other| is_related(&other.field, &error.field))
    {
        found.push(error);
    }
}

#[cfg(test)]
mod tests;
