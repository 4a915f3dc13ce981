//! Finds all problems of a manifest at once, for `launcherctl check`.
//!
//! ```text
//!  text ─► documents ─► kind ─► unknown fields ─► types ─► rules of admission ─► its defaults ─► conversion
//! ```
//!
//! Each problem is reported and removed from a copy, and the rest is checked.

use serde::Serialize;
use serde_json::{Value, json};

use super::documents::{self, INSTANCE_TYPE};
use super::error::MAX_PROBLEMS;
use super::fields::unknown_fields_of;
use super::kind::{MeantKind, meant_kind};
use super::lines::Node;
use super::refusals::{clear, clear_parent, is_related, refusals};
use super::rules::{violations, violations_of_vm};
use super::{config_data, defaults, path_pointer, typed};
use crate::json::{copy_at, set, text_at};
use os::logging::chain;

/// Limit of the converted bytes: a VMI is converted repeatedly to find all its refusals.
const MAX_CONVERTED_BYTES: usize = 8 << 20;
/// Limit of the wrongly typed fields searched for in a document.
const MAX_WRONG_TYPES: usize = 100;
/// Where a VirtualMachine has its VMI.
const TEMPLATE: &str = "spec.template.";
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

    /// A problem of a document's field.
    fn of_field(document: &Node, field: &str, message: String) -> Self {
        Self {
            field: field.to_owned(),
            ..Self::of_file(document.line_of(field), message)
        }
    }
}

/// The problems of all VMs and VMIs of a text, by line: at most [`MAX_PROBLEMS`], and a note if
/// there are more.
pub fn problems(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut documents = Node::read(text);
    if let Err(error) = &documents
        && error.is_repeated_field
    {
        found.push(Problem::of_file(error.line, error.message.clone()));
        documents = Node::read_with_repeated(text);
    }
    let documents = match documents {
        Ok(documents) => documents,
        Err(error) => {
            let message = format!("invalid YAML: {}", error.message);
            found.push(Problem::of_file(error.line, message));
            return found;
        }
    };
    let vms = || {
        documents
            .iter()
            .filter_map(|node| Some((meant_kind(node)?, node)))
    };
    if vms().next().is_none() {
        let line = documents.first().map_or(1, |node| node.line_of("kind"));
        let error = documents::the_vmi(documents.iter().map(Node::value).collect()).err();
        found.extend(error.map(|error| Problem::of_file(line, chain(&error))));
    }
    let of_vms = vms().flat_map(|(meant, node)| of_document(meant, node));
    let of_others = documents.iter().flat_map(of_config_data);
    found.extend(of_vms.chain(of_others).take(MAX_PROBLEMS + 1));
    found.sort_by_key(|problem| problem.line);
    if found.len() > MAX_PROBLEMS {
        found.truncate(MAX_PROBLEMS);
        let line = found.last().map_or(1, |problem| problem.line);
        let message = format!("there are more than {MAX_PROBLEMS} problems; mend these first");
        found.push(Problem {
            severity: Severity::Note,
            ..Problem::of_file(line, message)
        });
    }
    found
}

/// The problems of a ConfigMap or Secret.
fn of_config_data(node: &Node) -> impl Iterator<Item = Problem> {
    let wrong = config_data::document_problems(&node.value()).into_iter();
    wrong.map(|(field, message)| Problem::of_field(node, &field, message))
}

struct Found<'a> {
    node: &'a Node,
    /// Whether the VMI is in a template.
    is_template: bool,
    problems: Vec<Problem>,
    /// Fields of the VMI with a problem.
    fields: Vec<String>,
}

impl Found<'_> {
    /// Whether there are more problems than are shown.
    fn is_full(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    /// Adds a problem of a document's field, unless there are too many.
    fn add_at(&mut self, field: &str, message: String) {
        if !self.is_full() {
            let problem = Problem::of_field(self.node, field, message);
            self.problems.push(problem);
        }
    }

    /// Adds a problem of the VMI's field.
    fn add(&mut self, path: &str, message: String) {
        if self.is_full() || self.fields.iter().any(|field| field == path) {
            return;
        }
        self.fields.push(path.to_owned());
        let in_template = format!("{TEMPLATE}{path}");
        // The VM has the VMI's name and namespace.
        let is_of_template = ["spec.", "metadata.labels", "metadata.annotations"]
            .iter()
            .any(|start| path.starts_with(start));
        let field = if self.is_template && is_of_template {
            &in_template
        } else {
            path
        };
        self.add_at(field, message);
    }

    /// Like [`Self::add`], for a possible consequence of an earlier problem.
    fn add_unless_related(&mut self, path: &str, message: String) {
        if !self.fields.iter().any(|field| is_related(field, path)) {
            self.add(path, message);
        }
    }
}

fn of_document(meant: MeantKind, node: &Node) -> Vec<Problem> {
    let mut value = node.value();
    let mut found = Found {
        node,
        is_template: meant.kind != documents::VMI,
        problems: Vec::new(),
        fields: Vec::new(),
    };
    let is_misplaced = meant
        .problem
        .as_ref()
        .is_some_and(|(field, _)| field.starts_with("spec."));
    for unknown in unknown_fields_of(meant.kind, node) {
        // In a document of the other kind, most fields of the spec are unknown.
        if !(is_misplaced && unknown.path.split('.').count() == 2) {
            found.add_at(&unknown.path, unknown.message());
        }
    }
    if let Some((field, message)) = meant.problem {
        found.add_at(field, message);
    }
    let version = text_at(&value, "/apiVersion");
    if !version.is_empty() && !API_VERSIONS.contains(&version) {
        let message =
            format!("{version:?} is not a version of KubeVirt's; expected kubevirt.io/v1");
        found.add_at("apiVersion", message);
    }
    if meant.kind != documents::VMI {
        for violation in violations_of_vm(&value) {
            found.add_at(&violation.field, violation.message);
        }
    }
    if found.is_full() {
        return found.problems;
    }
    set(&mut value, "/kind", json!(meant.kind));
    match documents::into_vmi(value) {
        Ok(vmi) => of_vmi(vmi, &mut found),
        Err(error) => {
            found.add_at(error.field(), error.message());
            if error.field() == INSTANCE_TYPE
                && let Some(problem) = found.problems.last_mut()
            {
                problem.severity = Severity::Note;
            }
        }
    }
    found.problems
}

/// The refused values.
fn of_vmi(mut vmi: Value, found: &mut Found<'_>) {
    for _ in 0..MAX_WRONG_TYPES {
        let Err(error) = typed(&vmi) else { break };
        found.add_unless_related(error.field(), error.message());
        if !clear(&mut vmi, error.field()) && !clear_parent(&mut vmi, error.field(), &[]) {
            return;
        }
    }
    let wrong_types = found.fields.clone();
    for violation in violations(&vmi) {
        if found.is_full() {
            return;
        }
        let field = &violation.field;
        if !wrong_types.iter().any(|wrong| is_related(wrong, field)) {
            found.add(field, violation.message);
        }
    }
    while let Err(error) = defaults::of_admission(&mut vmi) {
        found.add_unless_related(error.field(), error.message());
        let mended = match error.field() {
            "metadata.name" => json!("check"),
            "spec.architecture" => Value::Null,
            _of_memory => json!("64Mi"),
        };
        let pointer = path_pointer(error.field());
        if copy_at(&vmi, &pointer) == mended {
            return;
        }
        set(&mut vmi, &pointer, mended);
    }
    defaults::of_cluster(&mut vmi);
    if found.is_full() {
        return;
    }
    let bytes = vmi.to_string().len().max(1);
    for (field, reason) in refusals(vmi, MAX_CONVERTED_BYTES / bytes) {
        found.add_unless_related(&field, reason);
    }
}

#[cfg(test)]
mod tests;
