//! Compares Domain JSON: exactly, or the way Go's decoder reads it.

use serde_json::Value;

/// How strict the comparison is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A null is not an absent member.
    Exact,
    /// Null, absent, `""`, 0, false, `[]` and `{}` are equal, which is how Go's decoder reads most
    /// of them; members in [`PRESENCE`] keep `{}` and null apart even then.
    GoZero,
}

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
pub fn differences(want: &Value, got: &Value, mode: Mode) -> Vec<String> {
    let mut out = Vec::new();
    compare(want, got, "$", None, mode, &mut out);
    out
}

fn compare(
    want: &Value,
    got: &Value,
    path: &str,
    key: Option<&str>,
    mode: Mode,
    out: &mut Vec<String>,
) {
    let presence = key.is_some_and(|k| PRESENCE.contains(&k));
    if presence
        && want.is_null() != got.is_null()
        && (is_empty_object(want) || is_empty_object(got))
    {
        out.push(format!("{path}: {}, got {}", show(want), show(got)));
        return;
    }
    if mode == Mode::GoZero && is_zero(want) && is_zero(got) {
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
                    (Some(w), None) if mode == Mode::Exact => {
                        out.push(format!("{path}: missing, want {}", show(w)))
                    }
                    (None, Some(g)) if mode == Mode::Exact => {
                        out.push(format!("{path}: unexpected {}", show(g)))
                    }
                    (w, g) => {
                        compare(
                            w.unwrap_or(&Value::Null),
                            g.unwrap_or(&Value::Null),
                            &path,
                            Some(key),
                            mode,
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
                compare(w, g, &format!("{path}[{i}]"), None, mode, out);
            }
        }
        _ if want != got => out.push(format!("{path}: {}, got {}", show(want), show(got))),
        _ => {}
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o
            .iter()
            .all(|(k, v)| is_zero(v) && !(PRESENCE.contains(&k.as_str()) && is_empty_object(v))),
    }
}

fn show(value: &Value) -> String {
    super::xml_compare::shorten(&value.to_string(), 120)
}
