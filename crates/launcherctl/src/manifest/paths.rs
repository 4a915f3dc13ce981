//! Paths of fields, such as `spec.domain.devices.disks[0].name`.

use serde_json::Value;

use crate::json::list_at;

/// A value with its path.
pub type At<'v> = (String, &'v Value);

/// What only a cluster applies to a VM.
pub const CLUSTER_PARTS: [&str; 2] = ["spec.instancetype", "spec.preference"];

/// The fields and indexes of a path.
pub fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|part| !part.is_empty())
}

/// A path as a JSON pointer.
pub fn pointer(path: &str) -> String {
    parts(path).flat_map(|part| ["/", part]).collect()
}

/// The path of a field below another path, which may be empty.
pub fn join(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}

/// Whether two paths are equal or one leads to the other.
pub fn is_related(one: &str, other: &str) -> bool {
    let leads = |one: &str, other: &str| {
        let rest = other.strip_prefix(one);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    leads(one, other) || leads(other, one)
}

/// The existing values below a part. In the path, `[]` means each item of a list, `a|b` both
/// fields, and `*` all.
pub fn each<'v>(part: At<'v>, path: &str) -> Vec<At<'v>> {
    let path = path.replace("[]", ".[]");
    let steps = path.split('.').filter(|step| !step.is_empty());
    steps.fold(vec![part], |found, step| {
        found.iter().flat_map(|part| inner(part, step)).collect()
    })
}

/// The values one step below a part.
fn inner<'v>((path, value): &At<'v>, step: &str) -> Vec<At<'v>> {
    if step == "[]" {
        let items = list_at(value, "").iter().enumerate();
        let item = |(index, item)| (format!("{path}[{index}]"), item);
        return items.map(item).collect();
    }
    let names: Vec<&str> = match (step, value) {
        ("*", Value::Object(members)) => members.keys().map(String::as_str).collect(),
        _ => step.split('|').collect(),
    };
    let fields = names
        .into_iter()
        .filter_map(|name| Some((name, value.get(name)?)));
    let set = fields.filter(|(_, field)| !field.is_null());
    set.map(|(name, field)| (join(path, name), field)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_related_by_whole_names() {
        assert!(is_related("spec.volumes[1]", "spec.volumes[1].name"));
        assert!(is_related("spec.domain.cpu.model", "spec.domain.cpu"));
        assert!(!is_related("spec.volumes[1]", "spec.volumes[10]"));
        assert!(!is_related("spec.domain.cpu", "spec.domain.cpuset"));
    }
}
