//! The fields of a VM and a VMI: a cluster silently drops fields with other names.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::error::MAX_PROBLEMS;
use super::lines::{Content, Node};

/// Limit of the found fields: one more than is shown, to know whether there are more.
const MAX_FOUND: usize = MAX_PROBLEMS + 1;
/// Fewest letters of an incomplete name.
const MIN_BEGINNING: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    pub path: String,
    pub line: u64,
    /// A field of the same object with a similar name.
    pub similar: Option<&'static str>,
    /// The object above or beside it that has such a field: its indentation may be wrong.
    pub belongs_in: Option<String>,
}

impl UnknownField {
    /// What is wrong, and what was probably meant.
    pub fn message(&self) -> String {
        match (self.similar, &self.belongs_in) {
            (Some(similar), _) => format!("unknown field; did you mean {similar}?"),
            (None, Some(place)) => {
                format!("unknown field; it belongs in {place}: is its indentation right?")
            }
            (None, None) => "unknown field".to_owned(),
        }
    }
}

/// The fields of a type, each with the type of its value, if that is checked.
type Fields = HashMap<&'static str, Option<&'static str>>;

static TYPES: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let fields = words.map(|word| match word.split_once(':') {
                Some((field, below)) => (field, Some(below)),
                None => (word, None),
            });
            Some((name, fields.collect()))
        })
        .collect()
});

/// The unknown fields of a VM or VMI, in the document's order. None for other kinds.
pub fn unknown_fields(document: &Node) -> Vec<UnknownField> {
    unknown_fields_of(document.text("kind"), document)
}

/// Like [`unknown_fields`], for a document that should have this kind.
pub fn unknown_fields_of(kind: &str, document: &Node) -> Vec<UnknownField> {
    let mut found = Vec::new();
    if let Some((kind, _)) = TYPES.get_key_value(kind) {
        check(kind, document, "", &[], &mut found);
    }
    found
}

/// `above` has the enclosing objects, outermost first, each with its path and fields.
fn check(
    kind: &str,
    node: &Node,
    path: &str,
    above: &[(&str, &Fields)],
    found: &mut Vec<UnknownField>,
) {
    if found.len() >= MAX_FOUND {
        return;
    }
    match &node.content {
        Content::Scalar(_) => {}
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                check(kind, item, &format!("{path}[{index}]"), above, found);
            }
        }
        Content::Object(members) => {
            let Some(fields) = TYPES.get(kind) else {
                return;
            };
            let here = [above, &[(path, fields)]].concat();
            for (name, member) in members {
                let field = inner(path, name);
                match fields.get(name.as_str()) {
                    Some(Some(below)) => check(below, member, &field, &here, found),
                    Some(None) => {}
                    None if found.len() >= MAX_FOUND => return,
                    None => {
                        let beside = members.iter().map(|(name, _)| name.as_str());
                        found.push(UnknownField {
                            path: field,
                            line: member.line,
                            similar: similar(name, fields),
                            belongs_in: beside_or_above(name, (path, fields), beside, above),
                        });
                    }
                }
            }
        }
    }
}

fn inner(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// The nearest object with a field of this name: one `beside`, or else one `above`.
fn beside_or_above<'m>(
    name: &str,
    (path, fields): (&str, &Fields),
    mut beside: impl Iterator<Item = &'m str>,
    above: &[(&str, &Fields)],
) -> Option<String> {
    let has_it = |other: &&str| {
        let below = fields.get(other).copied().flatten();
        let below = below.and_then(|kind| TYPES.get(kind));
        below.is_some_and(|fields| fields.contains_key(name))
    };
    if let Some(other) = beside.find(has_it) {
        return Some(inner(path, other));
    }
    let mut above = above.iter().rev();
    let (place, _) = above.find(|(_, fields)| fields.contains_key(name))?;
    // The document itself has no path.
    (!place.is_empty()).then(|| (*place).to_owned())
}

/// The field that was probably meant.
fn similar(name: &str, fields: &Fields) -> Option<&'static str> {
    crate::similar::similar(name, fields.keys().copied()).or_else(|| beginning(name, fields))
}

/// The only field that begins with all of `name`, as terminationGracePeriodSeconds with
/// terminationGracePeriod.
fn beginning(name: &str, fields: &Fields) -> Option<&'static str> {
    let mut longer = fields.keys().copied().filter(|it| it.starts_with(name));
    let first = longer.next().filter(|_| name.len() >= MIN_BEGINNING)?;
    longer.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_field_without_its_end_is_found() {
        let fields = TYPES.get("VirtualMachineInstanceSpec").unwrap();
        let meant = |name| similar(name, fields);
        assert_eq!(
            meant("terminationGracePeriod"),
            Some("terminationGracePeriodSeconds")
        );
        assert_eq!(meant("term"), None);
    }

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
    fn a_field_with_the_wrong_indentation_is_found_with_its_place() {
        let text = "
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory:
    guest: 1Gi
    devices:
      disks:
      - name: root
        disk:
          bus: virtio
          bootOrder: 1
    volumes: []
";
        let found = unknown_fields(&Node::read(text).unwrap()[0]);
        let places: Vec<_> = found
            .iter()
            .map(|it| (it.line, it.belongs_in.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(
            places,
            [
                (7, "spec.domain.memory"),
                (13, "spec.domain.devices.disks[0]"),
                (14, "spec"),
            ]
        );
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
        let found = unknown_fields(&Node::read(text).unwrap()[0]);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.path.as_str(), it.line, it.similar))
            .collect();
        let domain = "spec.template.spec.domain";
        assert_eq!(
            found,
            [
                (format!("{domain}.memroy").as_str(), 9, Some("memory")),
                (
                    format!("{domain}.ioThreadPolicy").as_str(),
                    10,
                    Some("ioThreadsPolicy")
                ),
                (
                    format!("{domain}.devices.disks[0].boot_order").as_str(),
                    13,
                    Some("bootOrder")
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
