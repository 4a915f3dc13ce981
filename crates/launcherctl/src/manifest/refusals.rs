//! Finds all refusals of the conversion, which stops at the first: each refused part is removed,
//! and the rest converted again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::context::context_of_pod;
use super::error::FieldError;
use super::paths::{is_related, pointer};
use super::typed;
use crate::json::{list_at, text_at};

/// Limit of one VMI's conversions; each removes a field or more.
const MAX_ATTEMPTS: usize = 300;
/// Without one of these, nothing would be left to convert.
const LARGE: [&str; 4] = ["spec", "spec.domain", "spec.domain.devices", "metadata"];
/// Lists whose items refer to each other by their names.
const PARTNERS: [(&str, &str); 5] = [
    ("spec.volumes", "spec.domain.devices.disks"),
    ("spec.volumes", "spec.domain.devices.filesystems"),
    ("spec.domain.devices.disks", "spec.volumes"),
    ("spec.networks", "spec.domain.devices.interfaces"),
    ("spec.domain.devices.interfaces", "spec.networks"),
];

/// The fields that the conversion refuses, with the reasons, in the order of finding, in at most
/// `attempts`: converting a large VMI takes long.
pub fn refusals(mut vmi: Value, attempts: usize) -> Vec<FieldError> {
    let mut found: Vec<FieldError> = Vec::new();
    let mut removed = Removed::default();
    for _ in 0..attempts.clamp(1, MAX_ATTEMPTS) {
        let Ok(parsed) = typed(&vmi) else { break };
        let Err(refusal) = convert::domain(&parsed, &context_of_pod(&parsed)) else {
            break;
        };
        let field = removed.original(&refusal.field);
        // Refused again because of the removed parts.
        let is_new = !found.iter().any(|other| is_related(&other.field, &field));
        if is_new {
            found.push(FieldError::new(field, refusal.reason.to_string()));
        }
        // If an item is removed, references to it are not refused for that.
        let is_item = refusal.field.ends_with(']');
        let is_changed = (is_new && !is_item && clear(&mut vmi, &refusal.field))
            || removed.remove_item(&mut vmi, &refusal.field).is_some()
            || clear_parent(&mut vmi, &refusal.field, &LARGE);
        if !is_changed {
            break;
        }
    }
    found
}

/// Sets the field to null, which means missing. Returns false if it does not exist. A list's item
/// becomes empty, so that other items keep their places.
pub fn clear(vmi: &mut Value, path: &str) -> bool {
    let empty = if path.ends_with(']') {
        json!({})
    } else {
        Value::Null
    };
    let pointer = pointer(path);
    match vmi.pointer_mut(&pointer) {
        Some(field) if *field != empty && !pointer.is_empty() => {
            *field = empty;
            true
        }
        _ => false,
    }
}

/// Clears the object or list that contains the field, unless it is one of `kept`.
pub fn clear_parent(vmi: &mut Value, path: &str, kept: &[&str]) -> bool {
    let ends = path.rmatch_indices(['.', '[']);
    let parents = ends.filter_map(|(end, _)| path.get(..end));
    let mut parents = parents.take_while(|parent| !kept.contains(parent));
    parents.any(|parent| clear(vmi, parent))
}

/// The items removed from lists: for each list, the items' places in the file.
#[derive(Debug, Default)]
struct Removed(BTreeMap<String, BTreeSet<usize>>);

impl Removed {
    /// Removes the list item that a path leads into, and items of other lists with its name.
    /// Returns the item.
    fn remove_item(&mut self, vmi: &mut Value, path: &str) -> Option<Value> {
        let (list, index, _) = split(path)?;
        let item = self.take(vmi, list, index)?;
        let name = text_at(&item, "/name");
        for (_, partner) in PARTNERS.iter().filter(|(one, _)| *one == list) {
            let mut items = list_at(vmi, &pointer(partner)).iter();
            if let Some(index) = items.position(|item| text_at(item, "/name") == name) {
                self.take(vmi, partner, index);
            }
        }
        Some(item)
    }

    fn take(&mut self, vmi: &mut Value, list: &str, index: usize) -> Option<Value> {
        let original = self.original_index(list, index);
        let items = vmi.pointer_mut(&pointer(list))?.as_array_mut()?;
        let item = (index < items.len()).then(|| items.remove(index))?;
        self.0.entry(list.to_owned()).or_default().insert(original);
        Some(item)
    }

    /// Translates a path of the current VMI to the original one.
    fn original(&self, path: &str) -> String {
        match split(path) {
            Some((list, index, rest)) => {
                format!("{list}[{}]{rest}", self.original_index(list, index))
            }
            None => path.to_owned(),
        }
    }

    fn original_index(&self, list: &str, index: usize) -> usize {
        let removed = self.0.get(list).into_iter().flatten();
        removed.fold(index, |index, gone| index + usize::from(*gone <= index))
    }
}

/// The first list of a path, the index, and the rest.
fn split(path: &str) -> Option<(&str, usize, &str)> {
    let (list, rest) = path.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    Some((list, index.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_refusals_are_found_with_their_places_in_the_file() {
        let disk = |name: &str, bus: &str| json!({"name": name, "disk": {"bus": bus}});
        let volume = |name: &str| json!({"name": name, "emptyDisk": {"capacity": "1Gi"}});
        let vmi = json!({
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "devices": {
                        "disks": [
                            disk("a", "virtio"), disk("b", "floppy"), disk("gone", "sata"), disk("d", "ide"),
                            disk("gone too", "sata"), {"name": "e", "errorPolicy": "never", "disk": {"bus": "none"}},
                        ],
                        "interfaces": [{"name": "lost", "bridge": {}}],
                    },
                },
                "volumes": [volume("a"), volume("b"), volume("d"), volume("e")],
            },
        });
        let mut fields: Vec<String> = refusals(vmi, MAX_ATTEMPTS)
            .into_iter()
            .map(|it| it.field)
            .collect();
        fields.sort();
        let disks = "spec.domain.devices.disks";
        assert_eq!(
            fields,
            [
                format!("{disks}[1].disk.bus"),
                format!("{disks}[2].name"),
                format!("{disks}[3].disk.bus"),
                format!("{disks}[4].name"),
                format!("{disks}[5].disk.bus"),
                format!("{disks}[5].errorPolicy"),
                "spec.domain.devices.interfaces[0].name".to_owned(),
            ]
        );
    }
}
