//! The fields of a VM and a VMI: a cluster silently drops fields with other names.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::error::{FieldError, MAX_PROBLEMS};
use super::lines::{Content, Node};
use super::paths::join;

/// Fewest letters of an incomplete name.
const MIN_BEGINNING: usize = 5;

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

/// The unknown fields of a document that is or should be of this kind, in the document's order.
/// None for other kinds than a VM and a VMI.
pub fn unknown_fields(kind: &str, document: &Node) -> Vec<FieldError> {
    let mut found = Vec::new();
    check(kind, document, "", &[], &mut found);
    found
}

/// `above` has the enclosing objects, outermost first, each with its path and fields.
fn check(
    kind: &str,
    node: &Node,
    path: &str,
    above: &[(&str, &Fields)],
    found: &mut Vec<FieldError>,
) {
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
                let field = join(path, name);
                match fields.get(name.as_str()) {
                    Some(Some(below)) => check(below, member, &field, &here, found),
                    Some(None) => {}
                    // One more than is shown, to know whether there are more.
                    None if found.len() > MAX_PROBLEMS => return,
                    None => {
                        let beside = members.iter().map(|(name, _)| name.as_str());
                        let place = beside_or_above(name, (path, fields), beside, above);
                        let message = message(similar(name, fields), place);
                        found.push(FieldError::new(field, message));
                    }
                }
            }
        }
    }
}

/// What is wrong with an unknown field: it is misspelt, or else in the wrong place.
fn message(meant: Option<&str>, place: Option<String>) -> String {
    match (meant, place) {
        (Some(meant), _) => format!("unknown field; did you mean {meant}?"),
        (None, Some(place)) => {
            format!("unknown field; it belongs in {place}: is its indentation right?")
        }
        (None, None) => "unknown field".to_owned(),
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
        return Some(join(path, other));
    }
    let mut above = above.iter().rev();
    let (place, _) = above.find(|(_, fields)| fields.contains_key(name))?;
    // The document itself has no path.
    (!place.is_empty()).then(|| (*place).to_owned())
}

/// The field that was probably meant: a similar one, or the only one that begins with all of
/// `name`, as terminationGracePeriodSeconds with terminationGracePeriod.
fn similar(name: &str, fields: &Fields) -> Option<&'static str> {
    let fields = || fields.keys().copied();
    let mut longer = fields().filter(|it| name.len() >= MIN_BEGINNING && it.starts_with(name));
    let beginning = longer.next().filter(|_| longer.next().is_none());
    crate::similar::similar(name, fields()).or(beginning)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::documents::{VM, VMI};
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
        let node = Node::read(text).unwrap().remove(0);
        let found = unknown_fields(VMI, &node);
        let place = |it: &FieldError| {
            let (_, place) = it.message.split_once(" belongs in ").unwrap();
            (
                node.line_of(&it.field),
                place.split_once(':').unwrap().0.to_owned(),
            )
        };
        let places: Vec<_> = found.iter().map(place).collect();
        assert_eq!(
            places,
            [
                (7, "spec.domain.memory".to_owned()),
                (13, "spec.domain.devices.disks[0]".to_owned()),
                (14, "spec".to_owned()),
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
        let node = Node::read(text).unwrap().remove(0);
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
