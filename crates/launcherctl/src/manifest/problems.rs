//! Finds all problems of a manifest at once, for `launcherctl check`.
//!
//! ```text
//!  text ─► documents ─► unknown fields ─► types ─► rules of admission ─► its defaults ─► conversion
//! ```
//!
//! Each problem is reported and removed from a copy, and the rest is checked.

use serde::Serialize;
use serde_json::{Value, json};

use super::cluster_only;
use super::config_data::{self, ConfigData};
use super::context::context_of_pod;
use super::documents;
use super::error::{FieldError, MAX_PROBLEMS};
use super::fields::unknown_fields;
use super::libvirt::{Questions, depends_on_machine};
use super::lines::YamlNode;
use super::paths::{CLUSTER_PARTS, is_related, pointer};
use super::rules::{violations, violations_of_data_volume, violations_of_vm};
use super::{defaults, typed};
use crate::json::{copy_at, set, text_at};
use os::logging::{chain, cut};

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
pub struct ManifestProblem {
    pub severity: Severity,
    /// Line of the file, from 1.
    pub line: u64,
    /// Path of the field in the file; empty for the whole file.
    pub field: String,
    /// The problem and the remedy.
    pub message: String,
}

impl ManifestProblem {
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
    fn of_field(document: &YamlNode, error: FieldError) -> Self {
        let line = document.line_of(&error.field);
        Self {
            field: error.field,
            ..Self::of_file(line, error.message)
        }
    }
}

/// The problems of all VMs and VMIs of a text, by line: at most [`MAX_PROBLEMS`], and a note if
/// there are more. Their texts are cut. libvirt is asked, where questions are given, about those
/// without an error.
pub fn problems(text: &str, libvirt: Option<&Questions<'_>>) -> Vec<ManifestProblem> {
    let mut found = whole_problems(text, libvirt);
    for ManifestProblem { field, message, .. } in &mut found {
        *field = cut(std::mem::take(field));
        *message = cut(std::mem::take(message));
    }
    found
}

fn whole_problems(text: &str, libvirt: Option<&Questions<'_>>) -> Vec<ManifestProblem> {
    let documents = match YamlNode::read(text) {
        Ok(documents) => documents,
        Err(error) => {
            let message = format!("invalid YAML: {}", error.message);
            return vec![ManifestProblem::of_file(error.line, message)];
        }
    };
    let values = documents.iter().map(YamlNode::value);
    let data = values.map(|it| config_data::of_document(&it));
    let data: ConfigData = data.filter_map(Result::ok).flatten().collect();
    let is_vm = |node: &&YamlNode| documents::KINDS.contains(&node.text("kind"));
    let mut found: Vec<ManifestProblem> = documents
        .iter()
        .flat_map(|node| of_document(node, &data, libvirt))
        .collect();
    match documents.iter().filter(is_vm).nth(1) {
        Some(second) => {
            let message = "run takes one virtual machine: put each into a file of its own";
            let error = FieldError::new("kind", message);
            found.push(ManifestProblem::of_field(second, error).into_note());
        }
        None if documents.iter().all(|it| it.text("kind").is_empty()) => {
            let line = documents.first().map_or(1, |node| node.line_of("kind"));
            let error = documents::the_vmi(documents.iter().map(YamlNode::value).collect()).err();
            found.extend(error.map(|error| ManifestProblem::of_file(line, chain(&error))));
        }
        None => {}
    }
    found.sort_by_key(|problem| problem.line);
    if found.len() > MAX_PROBLEMS {
        found.truncate(MAX_PROBLEMS);
        let line = found.last().map_or(1, |problem| problem.line);
        let message = format!("there are more than {MAX_PROBLEMS} problems; mend these first");
        found.push(ManifestProblem::of_file(line, message).into_note());
    }
    found
}

/// The problems of a document; a note for one that nobody reads here.
fn of_document(
    node: &YamlNode,
    data: &ConfigData,
    libvirt: Option<&Questions<'_>>,
) -> Vec<ManifestProblem> {
    let errors: Vec<FieldError> = match node.text("kind") {
        "" => Vec::new(),
        kind @ (documents::VM | documents::VMI) => return of_vm(node, kind, data, libvirt),
        "DataVolume" => violations_of_data_volume(&node.value()).collect(),
        "ConfigMap" | "Secret" => config_data::document_problems(&node.value()),
        kind => {
            let message = format!(
                "{kind:?} is not read, neither by check nor by run; they read virtual machines, DataVolumes, ConfigMaps and Secrets"
            );
            let error = FieldError::new("kind", message);
            return vec![ManifestProblem::of_field(node, error).into_note()];
        }
    };
    let errors = errors.into_iter();
    errors
        .map(|error| ManifestProblem::of_field(node, error))
        .collect()
}

/// The problems of a VM or VMI, with the ConfigMaps and Secrets beside it.
fn of_vm(
    node: &YamlNode,
    kind: &str,
    data: &ConfigData,
    libvirt: Option<&Questions<'_>>,
) -> Vec<ManifestProblem> {
    let is_vmi = kind == documents::VMI;
    let problem = |error| ManifestProblem::of_field(node, error);
    let unknown = unknown_fields(kind, node).into_iter();
    let mut found: Vec<ManifestProblem> = unknown.map(problem).collect();
    let value = node.value();
    let version = text_at(&value, "/apiVersion");
    if !version.is_empty() && !API_VERSIONS.contains(&version) {
        let message =
            format!("{version:?} is not a version of KubeVirt's; expected kubevirt.io/v1");
        found.push(problem(FieldError::new("apiVersion", message)));
    }
    if !is_vmi {
        found.extend(violations_of_vm(&value).map(problem));
    }
    let in_vmi = |error| problem(if is_vmi { error } else { in_template(error) });
    match documents::into_vmi(value) {
        Ok(mut vmi) => {
            let notes = cluster_only::notes(&vmi).into_iter().map(in_vmi);
            let notes: Vec<ManifestProblem> = notes.map(ManifestProblem::into_note).collect();
            let references = config_data::references(&vmi);
            let beside = references
                .iter()
                .filter(|it| data.contains_key(&(it.kind, it.name.to_owned())));
            let lacking: Vec<_> = beside.filter_map(|it| it.files(data).err()).collect();
            found.extend(lacking.into_iter().map(in_vmi));
            let errors = of_vmi(&mut vmi);
            let asked = libvirt.filter(|_| errors.is_empty());
            found.extend(errors.into_iter().map(in_vmi));
            let refusals = asked.map(|libvirt| libvirt.refusals(vmi));
            found.extend(
                refusals.into_iter().flatten().map(|mut error| {
                    match depends_on_machine(&error.field) {
                        true => {
                            error.message.push_str("; another machine's may take it");
                            in_vmi(error).into_note()
                        }
                        false => in_vmi(error),
                    }
                }),
            );
            // What follows from an error is no news.
            let errors = found.clone();
            let is_known =
                |note: &ManifestProblem| errors.iter().any(|it| is_related(&it.field, &note.field));
            found.extend(notes.into_iter().filter(|note| !is_known(note)));
        }
        Err(mut error) if CLUSTER_PARTS.contains(&&*error.field) => {
            error.message.insert_str(0, "run refuses it: ");
            found.push(problem(error).into_note());
        }
        Err(error) => found.push(problem(error)),
    }
    found
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
        let is_cleared = clear(vmi, &error.field);
        add_news(&mut found, error);
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
        let is_known = found.iter().any(|other| other.field == *field);
        if !is_known && !may_follow(&wrong_types, field) {
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
        add_news(&mut found, error);
        if copy_at(vmi, &pointer) == mended {
            return found;
        }
        set(vmi, &pointer, mended);
    }
    defaults::of_cluster(vmi);
    // The conversion stops at the first one that it refuses.
    if let Ok(parsed) = typed(vmi)
        && let Err(refusal) = convert::domain(&parsed, &context_of_pod(&parsed))
    {
        let refusal = FieldError::new(refusal.field, refusal.reason.to_string());
        add_news(&mut found, refusal);
    }
    found
}

/// Whether the path ends at a volume.
fn is_volume(field: &str) -> bool {
    field.starts_with("spec.volumes[") && field.ends_with(']')
}

/// Whether a problem of the field may follow from one of these.
fn may_follow(found: &[FieldError], field: &str) -> bool {
    found.iter().any(|other| is_related(&other.field, field))
}

/// Adds a problem that does not follow from an earlier one.
fn add_news(found: &mut Vec<FieldError>, error: FieldError) {
    if !may_follow(found, &error.field) {
        found.push(error);
    }
}

/// Sets the field to null, which means missing, else what contains it. A list's item becomes empty,
/// so that other items keep their places. Returns false if there is nothing to set.
fn clear(vmi: &mut Value, path: &str) -> bool {
    let ends = path.rmatch_indices(['.', '[']);
    let parents = ends.filter_map(|(end, _)| path.get(..end));
    [path].into_iter().chain(parents).any(|path| {
        let empty = match path.ends_with(']') {
            true => json!({}),
            false => Value::Null,
        };
        let pointer = pointer(path);
        let field = vmi.pointer_mut(&pointer).filter(|_| !pointer.is_empty());
        let field = field.filter(|field| **field != empty);
        field.map(|field| *field = empty).is_some()
    })
}

#[cfg(test)]
mod tests;
