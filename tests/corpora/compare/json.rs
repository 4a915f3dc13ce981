//! Compares Domain JSON exactly: a null is not an absent member.

use serde_json::Value;

/// Pointers to empty structures: `{}` is "set", null is "not set".
const PRESENCE: [&str; 6] = [
    "ACPI",
    "APIC",
    "SMM",
    "ReadOnly",
    "Shareable",
    "NoSharePages",
];

/// The differences between two documents, each with its path.
pub fn differences(want: &Value, got: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare(want, got, "$", None, &mut out);
    out
}

fn compare(want: &Value, got: &Value, path: &str, key: Option<&str>, out: &mut Vec<String>) {
    let presence = key.is_some_and(|k| PRESENCE.contains(&k));
    if presence
        && want.is_null() != got.is_null()
        && (is_empty_object(want) || is_empty_object(got))
    {
        out.push(format!("{path}: {}, got {}", show(want), show(got)));
        return;
    }
    match (want, got) {
        (Value::Object(w), Value::Object(g)) => {
            let mut keys: Vec<&String> = w
                .keys()
                .chain(g.keys().filter(|k| !w.contains_key(*k)))
                .collect();
            keys.sort_unstable();
            for key in keys {
                let path = format!("{path}.{key}");
                match (w.get(key), g.get(key)) {
                    (Some(w), None) => out.push(format!("{path}: missing, want {}", show(w))),
                    (None, Some(g)) => out.push(format!("{path}: unexpected {}", show(g))),
                    (w, g) => {
                        compare(
                            w.unwrap_or(&Value::Null),
                            g.unwrap_or(&Value::Null),
                            &path,
                            Some(key),
                            out,
                        );
                    }
                }
            }
        }
        (Value::Array(w), Value::Array(g)) => {
            if w.len() != g.len() {
                out.push(format!("{path}: {} items, got {}", w.len(), g.len()));
            }
            for (i, (w, g)) in w.iter().zip(g).enumerate() {
                compare(w, g, &format!("{path}[{i}]"), None, out);
            }
        }
        _ if want != got => out.push(format!("{path}: {}, got {}", show(want), show(got))),
        _ => {}
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn show(value: &Value) -> String {
    super::xml::shorten(&value.to_string(), 120)
}
