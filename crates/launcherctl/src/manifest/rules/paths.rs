//! The paths of rules.

use serde_json::Value;

use crate::json::list_at;

/// A value with its path.
pub(super) type At<'v> = (String, &'v Value);

/// The existing values below a part. In the path, `[]` means each item of a list, `a|b` both
/// fields, and `*` all.
pub(super) fn each<'v>(part: At<'v>, path: &str) -> Vec<At<'v>> {
    let mut found = vec![part];
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (names, is_list) = match part.strip_suffix("[]") {
            Some(names) => (names, true),
            None => (part, false),
        };
        let fields = found.iter().flat_map(|(path, value)| {
            let members = value.as_object().into_iter().flatten();
            let all = members.map(|(name, _)| name.as_str());
            let named = names.split('|').filter(|name| *name != "*");
            let all = all.filter(move |_| names == "*");
            named.chain(all).filter_map(move |name| {
                let field = value.get(name).filter(|field| !field.is_null())?;
                Some((join(path, name), field))
            })
        });
        let items = |(path, list): At<'v>| {
            let items = list_at(list, "").iter().enumerate();
            items.map(move |(index, item)| (format!("{path}[{index}]"), item))
        };
        found = if is_list {
            fields.flat_map(items).collect()
        } else {
            fields.collect()
        };
    }
    found
}

/// The path of a field below another; each of the two may be empty.
pub(super) fn join(path: &str, field: &str) -> String {
    let dot = if path.is_empty() || field.is_empty() {
        ""
    } else {
        "."
    };
    format!("{path}{dot}{field}")
}

/// A path without lists as a JSON pointer.
pub(super) fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}
