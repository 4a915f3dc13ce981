//! Removes each field of a VMI, then changes it, and compares the resulting documents.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Converted;
use crate::Context;
use api::vmi::Vmi;

/// The parts of a VMI that are probed.
const PARTS: [&str; 3] = ["metadata", "spec", "status"];

/// What a probe found out.
#[derive(Debug)]
pub enum Finding<'a> {
    /// The fact with that key depends on the field.
    Source {
        /// Key of the fact.
        key: &'a str,
        /// Path of the field.
        field: &'a str,
    },
    /// Without the field the VMI is refused.
    Needed {
        /// Path of the field.
        field: &'a str,
        refusal: &'a crate::ConvertError,
    },
}

/// How many fields and items of lists are probed.
pub fn fields(vmi: &Value) -> usize {
    fn inside(value: &Value) -> usize {
        match value {
            Value::Object(members) => members.values().map(|member| 1 + inside(member)).sum(),
            Value::Array(items) => items.iter().map(|item| 1 + inside(item)).sum(),
            _ => 0,
        }
    }
    let parts = PARTS.iter().filter_map(|part| vmi.get(part));
    parts.map(|part| 1 + inside(part)).sum()
}

/// Probes all fields of a VMI. A fact is attributed to the innermost fields that it depends on.
pub fn vmi(
    vmi: &Value,
    ctx: &Context,
    converted: &Converted<'_>,
    note: &mut dyn FnMut(Finding<'_>),
) {
    let mut probe = Probe {
        vmi: vmi.clone(),
        ctx,
        converted,
        note,
    };
    for part in PARTS {
        if vmi.get(part).is_some() {
            probe.field(&mut vec![Segment::Key(part.to_owned())]);
        }
    }
}

/// A step into a JSON value.
#[derive(Debug, Clone)]
enum Segment {
    Key(String),
    Index(usize),
}

struct Probe<'a> {
    /// The VMI; the field that is being probed is removed or changed, and then restored.
    vmi: Value,
    ctx: &'a Context,
    converted: &'a Converted<'a>,
    note: &'a mut dyn FnMut(Finding<'_>),
}

type Keys<'a> = BTreeSet<&'a str>;

impl<'a> Probe<'a> {
    /// Probes a field and all that is in it; the facts that depend on any of it.
    fn field(&mut self, path: &mut Vec<Segment>) -> Keys<'a> {
        let mut inner = Keys::new();
        for segment in segments(at(&mut self.vmi, path)) {
            path.push(segment);
            inner.extend(self.field(path));
            path.pop();
        }
        let mut own = self.without(path);
        own.extend(self.changed(path));
        let field = written(path);
        for key in own.difference(&inner) {
            (self.note)(Finding::Source { key, field: &field });
        }
        inner.extend(own);
        inner
    }

    /// Facts that differ without the field.
    fn without(&mut self, path: &[Segment]) -> Keys<'a> {
        let Some((last, parent)) = path.split_last() else {
            return Keys::new();
        };
        let whole = self.vmi.clone();
        match (at(&mut self.vmi, parent), last) {
            (Some(Value::Object(members)), Segment::Key(key)) => drop(members.remove(key)),
            (Some(Value::Array(items)), Segment::Index(index)) if *index < items.len() => {
                drop(items.remove(*index));
            }
            _ => return Keys::new(),
        }
        let result = self.convert();
        self.vmi = whole;
        match result {
            Some(Ok(keys)) => keys,
            Some(Err(refusal)) => {
                (self.note)(Finding::Needed {
                    field: &written(path),
                    refusal: &refusal,
                });
                Keys::new()
            }
            None => Keys::new(),
        }
    }

    /// Facts that differ when the field has another value. This finds what depends on a
    /// field that only repeats a default, or that cannot be missing. The first other value counts
    /// with which the VMI is not refused.
    fn changed(&mut self, path: &[Segment]) -> Keys<'a> {
        let Some(before) = at(&mut self.vmi, path).cloned() else {
            return Keys::new();
        };
        let others = others(&before, path).into_iter();
        let mut changed = others.filter_map(|other| {
            self.set(path, other);
            self.convert()?.ok()
        });
        let found = changed.next().unwrap_or_default();
        self.set(path, before);
        found
    }

    fn set(&mut self, path: &[Segment], value: Value) {
        if let Some(field) = at(&mut self.vmi, path) {
            *field = value;
        }
    }

    /// Facts that differ now; `None` when this is not a VMI any more.
    fn convert(&self) -> Option<Result<Keys<'a>, crate::ConvertError>> {
        let vmi = Vmi::deserialize(&self.vmi).ok()?;
        match crate::domain(&vmi, self.ctx) {
            Ok(domain) => self.converted.keys_changed_in(&domain).map(Ok),
            Err(refusal) => Some(Err(refusal)),
        }
    }
}

fn at<'v>(value: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
    })
}

fn segments(value: Option<&mut Value>) -> Vec<Segment> {
    match value {
        Some(Value::Object(members)) => members.keys().cloned().map(Segment::Key).collect(),
        Some(Value::Array(items)) => (0..items.len()).map(Segment::Index).collect(),
        _ => Vec::new(),
    }
}

/// Values of the same kind that mean something else.
fn others(value: &Value, path: &[Segment]) -> Vec<Value> {
    match value {
        Value::Bool(on) => vec![json!(!on)],
        Value::Number(number) => {
            let others = number.as_i64().map(other_numbers).into_iter().flatten();
            others.map(Value::from).collect()
        }
        Value::String(text) => other_texts(text).into_iter().map(Value::String).collect(),
        // A disk cannot be without its volume, but it can have another one.
        Value::Object(volume) if is_volume(path) => {
            let source = if volume.contains_key("emptyDisk") {
                "configMap"
            } else {
                "emptyDisk"
            };
            vec![json!({"name": volume.get("name"), source: {}})]
        }
        _ => Vec::new(),
    }
}

fn is_volume(path: &[Segment]) -> bool {
    matches!(path, [Segment::Key(spec), Segment::Key(volumes), Segment::Index(_)] if spec == "spec" && volumes == "volumes")
}

/// One more, and twice as much: the latter keeps what must be divisible divisible.
fn other_numbers(number: i64) -> [i64; 2] {
    [number.checked_add(1).unwrap_or(0), number.saturating_mul(2)]
}

/// A quantity gets another number, any other text one more letter.
fn other_texts(text: &str) -> Vec<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (digits, suffix) = digits
        .and_then(|end| text.split_at_checked(end))
        .unwrap_or((text, ""));
    digits.parse().map_or_else(
        |_| vec![format!("{text}x")],
        |number| {
            other_numbers(number)
                .map(|number| format!("{number}{suffix}"))
                .into()
        },
    )
}

/// A path as it is written in messages: `spec.volumes[0].name`, keys with dots in brackets.
fn written(path: &[Segment]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Index(index) => text.push_str(&format!("[{index}]")),
            Segment::Key(key) if key.contains(['.', '/']) => text.push_str(&format!("[{key}]")),
            Segment::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_values_are_of_the_same_kind() {
        assert_eq!(other_texts("8Mi"), ["9Mi", "16Mi"]);
        assert_eq!(other_texts("virtio"), ["virtiox"]);
        assert_eq!(others(&json!(false), &[]), [json!(true)]);
        assert_eq!(others(&json!(i64::MAX), &[]), [json!(0), json!(i64::MAX)]);
        assert_eq!(others(&json!([]), &[]), [] as [Value; 0]);
    }

    #[test]
    fn paths_are_written_as_in_messages() {
        let segments = ["spec", "volumes"].map(|key| Segment::Key(key.to_owned()));
        let path = [&segments[..], &[Segment::Index(2)]].concat();
        assert_eq!(written(&path), "spec.volumes[2]");
    }
}
