//! The fields of a VM and a VMI: a cluster silently drops fields with other names.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::error::{FieldError, MAX_PROBLEMS};
use super::lines::{Content, YamlNode};
use super::paths::join;
use crate::similar::similar;

/// The fields of a type, each with the type of its value, if that is checked.
type Fields = HashMap<&'static str, Option<&'static str>>;

static TYPES: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines();
    let types = lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let fields = words.map(|word| match word.split_once(':') {
                Some((field, below)) => (field, Some(below)),
                None => (word, None),
            });
            Some((name, fields.collect()))
        });
    types.collect()
});

/// The unknown fields of a VM or VMI, in the document's order; none for another kind.
pub fn unknown_fields(kind: &str, document: &YamlNode) -> Vec<FieldError> {
    let mut found = Vec::new();
    check(kind, document, "", &mut found);
    found
}

fn check(kind: &str, node: &YamlNode, path: &str, found: &mut Vec<FieldError>) {
    match &node.content {
        Content::Scalar(_) => {}
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                check(kind, item, &format!("{path}[{index}]"), found);
            }
        }
        Content::Object(members) => {
            let Some(fields) = TYPES.get(kind) else {
                return;
            };
            for (name, member) in members {
                let field = join(path, name);
                match fields.get(name.as_str()) {
                    Some(Some(below)) => check(below, member, &field, found),
                    Some(None) => {}
                    // One more than is shown, to know whether there are more.
                    None if found.len() > MAX_PROBLEMS => return,
                    None => {
                        let message = match similar(name, fields.keys().copied()) {
                            Some(meant) => format!("unknown field; did you mean {meant}?"),
                            None => "unknown field; is its indentation right?".to_owned(),
                        };
                        found.push(FieldError::new(field, message));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::documents::VM;
    use super::*;

    #[test]
    fn each_type_that_is_named_has_a_line() {
        for (name, fields) in TYPES.iter() {
            for below in fields.values().flatten() {
                assert!(TYPES.contains_key(below), "{below} of {name}");
            }
        }
        assert!(TYPES.len() > 100);
    }

    #[test]
    fn a_misspelt_field_is_found_with_the_one_that_was_meant() {
        let text = "
kind: VirtualMachine
metadata: {name: a, labels: {any: thing}}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        memroy: {guest: 1Gi}
        ioThreadPolicy: auto
        devices:
          disks:
          - {name: root, boot_order: 1, disk: {bus: virtio}}
          interfaces: [{name: a, masquerade: {mode: x}}]
        resources: {requests: {memory: 1Gi, 'example.org/x': 1}}
";
        let node = YamlNode::read(text).unwrap().remove(0);
        let found = unknown_fields(VM, &node);
        let meant = |it: &FieldError| {
            let meant = it.message.strip_prefix("unknown field; did you mean ");
            meant.map(|meant| meant.trim_end_matches('?').to_owned())
        };
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.field.as_str(), node.line_of(&it.field), meant(it)))
            .collect();
        let domain = "spec.template.spec.domain";
        assert_eq!(
            found,
            [
                (
                    format!("{domain}.memroy").as_str(),
                    9,
                    Some("memory".to_owned())
                ),
                (
                    format!("{domain}.ioThreadPolicy").as_str(),
                    10,
                    Some("ioThreadsPolicy".to_owned())
                ),
                (
                    format!("{domain}.devices.disks[0].boot_order").as_str(),
                    13,
                    Some("bootOrder".to_owned())
                ),
                (
                    format!("{domain}.devices.interfaces[0].masquerade.mode").as_str(),
                    14,
                    None
                ),
            ]
        );
    }
}
