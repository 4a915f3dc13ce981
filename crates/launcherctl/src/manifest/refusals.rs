//! Finds further refusals of the conversion, which stops at the first: each refused part is
//! removed, and the rest converted again, up to one that hides the rest.

use serde_json::{Value, json};

use super::context::context_of_pod;
use super::error::FieldError;
use super::paths::{is_related, pointer};
use super::typed;

/// Limit of one VMI's conversions; each removes a field or more.
const MAX_ATTEMPTS: usize = 300;
/// Without one of these, nothing would be left to convert.
const LARGE: [&str; 4] = ["spec", "spec.domain", "spec.domain.devices", "metadata"];

/// The fields that the conversion refuses, with the reasons, in the order of finding, in at most
/// `attempts`: converting a large VMI takes long.
pub fn refusals(mut vmi: Value, attempts: usize) -> Vec<FieldError> {
    let mut found: Vec<FieldError> = Vec::new();
    for _ in 0..attempts.clamp(1, MAX_ATTEMPTS) {
        let Ok(parsed) = typed(&vmi) else { break };
        let Err(refusal) = convert::domain(&parsed, &context_of_pod(&parsed)) else {
            break;
        };
        let error = FieldError::new(refusal.field, refusal.reason.to_string());
        // Refused again because of the removed parts.
        let is_new = !found
            .iter()
            .any(|other| is_related(&other.field, &error.field));
        let is_changed = (is_new && clear(&mut vmi, &error.field))
            || clear_parent(&mut vmi, &error.field, &LARGE);
        if is_new {
            found.push(error);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_found_up_to_one_that_hides_the_rest() {
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
                "spec.domain.devices.interfaces[0].name".to_owned(),
            ]
        );
    }
}
