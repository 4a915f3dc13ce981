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
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let line = |it: &Problem| format!("{}: {}: {}", it.line, it.field, it.message);
        problems(text).iter().map(line).collect()
    }

    #[test]
    fn all_problems_are_found_at_once_with_their_lines() {
        let found = found(
            "kind: VirtualMachine
metadata: {name: Web}
spec:
  template:
    spec:
      domain:
        memroy: {guest: 1Gi}
        cpu: {cores: two, threads: many}
        devices:
          disks:
          - {name: root, disk: {bus: floppy}}
      volumes:
      - {name: root, emptyDisk: {capacity: 1Gi}}
",
        );
        let starts = [
            "2: metadata.name: \"Web\" is not valid",
            "3: spec.runStrategy: missing",
            "4: spec.template.spec.domain.memory.guest: missing",
            "7: spec.template.spec.domain.memroy: unknown field; did you mean memory?",
            "8: spec.template.spec.domain.cpu.cores: expected a whole number",
            "8: spec.template.spec.domain.cpu.threads: expected a whole number",
            "11: spec.template.spec.domain.devices.disks[0].disk.bus: ",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for start in starts {
            let there = found.iter().any(|line| {
                // For something missing, the line is that of the part that should have it.
                line.split_once(": ").is_some_and(|(_, rest)| {
                    start
                        .split_once(": ")
                        .is_some_and(|(_, start)| rest.starts_with(start))
                })
            });
            assert!(there, "{start}: {found:#?}");
        }
        assert!(
            found.iter().any(|line| line.starts_with("8: ")),
            "{found:#?}"
        );
    }

    #[test]
    fn many_problems_are_counted_and_the_first_are_shown() {
        let vmi = |name: &str, inside: String| {
            format!(
                "kind: VirtualMachineInstance\nmetadata: {{name: {name}}}\nspec:\n  domain:\n    memory: {{guest: 1Gi}}\n    devices: {{}}\n{inside}"
            )
        };
        let unknown = |count| {
            (0..count)
                .map(|n| format!("    unknown{n}: 1\n"))
                .collect::<String>()
        };
        let volumes = |count| {
            let volumes = (0..count).map(|n| format!("  - {{name: A{n}, emptyDisk: {{}}}}\n"));
            format!("  volumes:\n{}", volumes.collect::<String>())
        };
        assert_eq!(found(&vmi("a", unknown(MAX_PROBLEMS))).len(), MAX_PROBLEMS);
        for text in [
            vmi("a", unknown(MAX_PROBLEMS + 1)),
            vmi("a", volumes(3_000)),
            [vmi("a", unknown(60)), vmi("b", unknown(60))].join("---\n"),
        ] {
            let found = found(&text);
            assert_eq!(found.len(), MAX_PROBLEMS + 1, "{found:#?}");
            let last = found.last().map(String::as_str).unwrap_or_default();
            assert!(
                last.ends_with("there are more than 100 problems; mend these first"),
                "{last}"
            );
        }
    }

    #[test]
    fn what_is_no_manifest_has_one_problem() {
        assert_eq!(found("kind: [").len(), 1);
        assert_eq!(found("kind: ConfigMap").len(), 1);
        let instancetype = "kind: VirtualMachine\nmetadata: {name: a}\nspec:\n  runStrategy: Always\n  instancetype: {name: u1}\n  template: {spec: {domain: {}}}\n";
        let found = found(instancetype);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found.iter().all(|it| it.starts_with("5: spec.instancetype: ")
                && it.contains("virtctl expand")),
            "{found:?}"
        );
    }

    /// The problems' lines and fields.
    fn places(text: &str) -> Vec<String> {
        let place = |it: &Problem| format!("{}: {}", it.line, it.field);
        problems(text).iter().map(place).collect()
    }

    #[test]
    fn a_wrong_kind_does_not_hide_the_rest() {
        let spec = "metadata: {name: Web}\nspec:\n  runStrategy: Always\n  template:\n    spec:\n      domain:\n        memroy: {}\n        memory: {guest: 1Gi}\n";
        let rest = ["2: metadata.name", "8: spec.template.spec.domain.memroy"];
        let found = places(&format!("kind: VirtualMachin\n{spec}"));
        assert_eq!(found, [&["1: kind"], &rest[..]].concat());
        let found = places(&format!("kind: VirtualMachineInstance\n{spec}"));
        assert_eq!(found, [rest[0], "5: spec.template", rest[1]]);
    }

    #[test]
    fn a_field_that_is_there_twice_does_not_hide_the_rest() {
        let text = "kind: VirtualMachineInstance\nmetadata: {name: a}\nmetadata: {name: B}\nspec: {domain: {memory: {guest: 1Gx}}}\n";
        let found = found(text);
        assert!(
            found[0].starts_with("3: : ") && found[0].contains("metadata is there twice"),
            "{found:?}"
        );
        assert_eq!(
            places(text)[1..],
            ["3: metadata.name", "4: spec.domain.memory.guest"]
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_has_one_problem() {
        let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory: 1Gi
    cpu: 2
    devices:
      disks:
      - root
      - {name: data, disk: virtio}
  volumes:
  - {name: data, emptyDisk: 1Gi}
";
        assert_eq!(
            places(text),
            [
                "5: spec.domain.memory",
                "6: spec.domain.cpu",
                "9: spec.domain.devices.disks[0]",
                "10: spec.domain.devices.disks[1].disk",
                "12: spec.volumes[0].emptyDisk",
            ]
        );
    }

    #[test]
    fn a_list_for_an_object_does_not_hide_the_rest() {
        let text = "kind: VirtualMachineInstance\nmetadata:\n- name: a\nspec: {domain: {memory: {guest: 1Gx}, cpu: 2}}\n";
        let found = places(text);
        assert_eq!(
            found,
            [
                "2: metadata.name",
                "3: metadata[0]",
                "4: spec.domain.cpu",
                "4: spec.domain.memory.guest"
            ]
        );
    }

    #[test]
    fn rules_and_refusals_are_found_together() {
        let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    machine: {type: q36}
    memory: {guest: 1Gb}
    devices:
      disks:
      - {name: root, bootOrder: 1, disk: {bus: virtio}}
      - {name: root, bootOrder: 1, disk: {bus: floppy}}
      - {name: lost, disk: {bus: scsi}}
      interfaces:
      - {name: defalt, masquerade: {}}
  networks:
  - {name: default, pod: {}}
  volumes:
  - {name: root, containerDisk: {image: x}}
  - {name: root, emptyDisk: {capacity: 1Gg}}
  - {name: data, persistentVolumeClaim: {}}
  - name: nothing
";
        assert_eq!(
            places(text),
            [
                "5: spec.domain.machine.type",
                "6: spec.domain.memory.guest",
                "10: spec.domain.devices.disks[1].name",
                "10: spec.domain.devices.disks[1].bootOrder",
                "10: spec.domain.devices.disks[1].disk.bus",
                "11: spec.domain.devices.disks[2].name",
                "13: spec.domain.devices.interfaces[0].name",
                "15: spec.networks[0].name",
                "18: spec.volumes[1].name",
                "18: spec.volumes[1].emptyDisk.capacity",
                "19: spec.volumes[2].persistentVolumeClaim.claimName",
                "20: spec.volumes[3]",
            ]
        );
    }

    #[test]
    fn syntax_errors_have_one_line_and_say_what_to_do() {
        for (text, start) in [
            ("a:\n  - name: root\n   disk: {}\n", "3: : invalid YAML: "),
            ("a: {b: 1\nc: {}\n", "2: : invalid YAML: "),
            ("a: \"b\nc: d\n", "2: : invalid YAML: a quote"),
        ] {
            let found = found(text);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
            assert!(!found[0].contains('\n'), "{found:?}");
        }
    }

    #[test]
    fn a_tab_has_its_own_line() {
        for (text, line) in [
            ("kind: A\nmetadata:\n\tname: web\n", 3),
            ("kind: A\n\tmetadata: {name: web}\n", 2),
            ("kind: A\nspec:\n  volumes:\n  - name: x\n\t  disk: {}\n", 5),
            ("kind: \"A\n\tb\"\n", 2),
        ] {
            assert_eq!(
                found(text),
                [format!(
                    "{line}: : invalid YAML: tabs are not allowed for indentation in YAML; use spaces"
                )]
            );
        }
    }

    #[test]
    fn an_unknown_architecture_does_not_hide_the_rest() {
        let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  architecture: x86_64
  domain:
    memory: {guest: 64Mi}
    devices: {disks: [{name: root, disk: {bus: floppy}}]}
  volumes: [{name: root, emptyDisk: {capacity: 1Gi}}]
";
        let found = found(text);
        assert_eq!(
            found[0],
            "4: spec.architecture: \"x86_64\" is not supported; did you mean amd64?"
        );
        assert!(
            found.len() == 2 && found[1].starts_with("7: spec.domain.devices.disks[0].disk.bus"),
            "{found:?}"
        );
    }

    #[test]
    fn fields_outside_the_template_are_checked() {
        let text = "kind: VirtualMachine
metadata: {name: a}
spec:
  running: \"true\"
  runStrategy: always
  template: {spec: {domain: {memory: {guest: 64Mi}, devices: {}}}}
";
        let found = found(text);
        assert_eq!(found.len(), 3, "{found:?}");
        for (line, start) in found.iter().zip([
            "4: spec.running: expected true or false, found the text \"true\"; write true without quotes",
            "4: spec.running: both running and runStrategy",
            "5: spec.runStrategy: \"always\" is not supported; expected Always, ",
        ]) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn a_vm_says_whether_it_runs() {
        let vm = |spec: &str| {
            found(&format!(
                "kind: VirtualMachine\nmetadata: {{name: a}}\nspec:\n{spec}  template: {{spec: {{domain: {{memory: {{guest: 64Mi}}, devices: {{}}}}}}}}\n"
            ))
        };
        for missing in ["", "  running:\n", "  runStrategy: null\n"] {
            let found = vm(missing);
            assert!(
                found.len() == 1 && found[0].contains(": spec.runStrategy: missing; "),
                "{missing}: {found:?}"
            );
        }
        for given in ["  running: false\n", "  runStrategy: Halted\n"] {
            assert_eq!(vm(given), Vec::<String>::new());
        }
    }

    #[test]
    fn the_labels_of_a_vm_and_of_its_template_have_their_own_places() {
        let text = "kind: VirtualMachine
metadata: {name: a, labels: [b]}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {c: 5}, annotations: [d]}
    spec: {domain: {memory: {guest: 64Mi}, devices: {}}}
";
        assert_eq!(
            places(text),
            [
                "2: metadata.labels",
                "6: spec.template.metadata.annotations",
                "6: spec.template.metadata.labels.c",
            ]
        );
    }

    #[test]
    fn config_maps_and_secrets_beside_the_vm_are_checked() {
        let text = "kind: VirtualMachineInstance
metadata: {name: a}
spec: {domain: {memory: {guest: 64Mi}, devices: {}}}
---
kind: ConfigMap
metadata: {name: settings}
data: {mode: 5, level: high}
---
kind: Secret
metadata: {name: keys}
data:
  a: plain text!
  b: aGVsbG8=
stringData: [a]
";
        let found = found(text);
        let starts = [
            "7: data.mode: ConfigMap \"settings\": the value of \"mode\" is not text",
            "12: data.a: Secret \"keys\": the value of \"a\" is not valid Base64; plain text belongs into stringData",
            "14: stringData: expected an object with fields, found a list",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (line, start) in found.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn a_sound_manifest_has_none() {
        let text = "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec: {domain: {memory: {guest: 64Mi}, devices: {}}}\n";
        assert_eq!(found(text), Vec::<String>::new());
    }
}
