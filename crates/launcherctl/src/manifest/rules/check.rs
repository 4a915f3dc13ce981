//! What a rule can say of the values at its path, and how it is checked.

use std::collections::BTreeMap;

use serde_json::Value;

use super::memory::thousandths;
use crate::json::{find_named, text_at};
use crate::manifest::error::FieldError;
use crate::manifest::paths::{At, each, join, pointer};
use Check::{
    AtMost, AtMostOne, Below, ExactlyOne, Has, If, Named, Needs, OneOf, Text, Unique, Wrong,
};

/// Paths of [`each`] with the conditions on their values.
pub(super) type Rules = &'static [(&'static str, Check)];

/// A condition on a value. A missing or null value passes.
pub(super) enum Check {
    /// The text is one of these, with `|` between them.
    OneOf(&'static str),
    /// The text is valid; with a description of valid texts.
    Text(fn(&str) -> bool, &'static str),
    /// At most one of these fields is set, with `|` between them.
    AtMostOne(&'static str),
    /// Exactly one of these fields is set, with `|` between them.
    ExactlyOne(&'static str),
    /// The field is set and not empty.
    Has(&'static str),
    /// The function returns the problem.
    Wrong(fn(&Value) -> Option<String>),
    /// The function returns the wrong field below the value, and the problem.
    Below(fn(&Value) -> Option<(&'static str, String)>),
    /// Only one value has this text, number or any object in the field. In the message, `{value}`
    /// is the repeated value, and `{other}` the path of its first use.
    Unique(&'static str, &'static str),
    /// Its name is in the list at the path; `{value}` in the message is the name.
    Named(&'static str, &'static str),
    /// The quantity is not larger than the one at the path.
    AtMost(&'static str),
    /// The VMI meets a condition; with the problem if it does not.
    Needs(fn(&Value) -> bool, &'static str),
    /// Rules for those values that the function chooses from the VMI.
    If(fn(&Value, &Value) -> bool, Rules),
}

/// The rules broken by a part of a VMI.
pub(super) fn broken<'v>(
    vmi: &'v Value,
    part: At<'v>,
    rules: Rules,
) -> impl Iterator<Item = FieldError> + 'v {
    let rules = rules.iter();
    rules.flat_map(move |(path, check)| check.broken(vmi, each(part.clone(), path)))
}

impl Check {
    fn broken(&self, vmi: &Value, values: Vec<At<'_>>) -> Vec<FieldError> {
        match self {
            Unique(field, message) => repeated(values, field, message),
            If(is_meant, rules) => {
                let meant = values.into_iter().filter(|(_, value)| is_meant(vmi, value));
                meant.flat_map(|part| broken(vmi, part, rules)).collect()
            }
            _ => {
                let violation = |(path, value): At<'_>| {
                    let (field, message) = self.problem(vmi, value)?;
                    let field = match field {
                        "" => path,
                        field => join(&path, field),
                    };
                    Some(FieldError { field, message })
                };
                values.into_iter().filter_map(violation).collect()
            }
        }
    }

    /// The wrong field below the value, which may be empty, and the problem.
    fn problem(&self, vmi: &Value, value: &Value) -> Option<(&'static str, String)> {
        let text = value.as_str().unwrap_or_default();
        let set = |fields: &'static str| {
            let set = fields
                .split('|')
                .filter(|field| !is_empty(value.get(field)));
            set.collect::<Vec<_>>()
        };
        let message = match self {
            Has(field) => {
                return is_empty(value.get(field)).then(|| (*field, "missing".to_owned()));
            }
            Below(wrong) => return wrong(value),
            Named(list, message) => {
                let name = text_at(value, "/name");
                let is_there = name.is_empty() || find_named(vmi, &pointer(list), name).is_some();
                let message = message.replace("{value}", &format!("{name:?}"));
                return (!is_there).then_some(("name", message));
            }
            OneOf(_) | Text(..) if text.is_empty() => None,
            OneOf(allowed) => not_one_of(text, allowed),
            Text(is_valid, valid) => {
                (!is_valid(text)).then(|| format!("{} is not valid: {valid}", shortened(text)))
            }
            Wrong(wrong) => wrong(value),
            AtMost(path) => {
                let limit = vmi.pointer(&pointer(path)).and_then(thousandths)?;
                (limit > 0 && thousandths(value)? > limit).then(|| format!("more than {path}"))
            }
            Needs(is_met, problem) => (!is_met(vmi)).then(|| (*problem).to_owned()),
            // Another rule reports that it is not an object.
            AtMostOne(_) | ExactlyOne(_) if !value.is_object() => None,
            ExactlyOne(fields) if set(fields).is_empty() => {
                Some(format!("it has none of {}", fields.replace('|', ", ")))
            }
            AtMostOne(fields) | ExactlyOne(fields) => {
                let set = set(fields);
                (set.len() > 1).then(|| format!("it has several ({}); choose one", set.join(", ")))
            }
            Unique(..) | If(..) => None,
        };
        Some(("", message?))
    }
}

/// Why a text is not one of these, which have `|` between them.
pub(super) fn not_one_of(text: &str, allowed: &str) -> Option<String> {
    let is_allowed = allowed.split('|').any(|it| it == text);
    let expected = allowed.replace('|', ", ");
    (!is_allowed).then(|| format!("{text:?} is not supported; expected {expected}"))
}

/// The values whose field another one has before them.
fn repeated(values: Vec<At<'_>>, field: &str, message: &str) -> Vec<FieldError> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for (path, value) in values {
        let shown = match value.get(field) {
            Some(Value::String(text)) if !text.is_empty() => format!("{text:?}"),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Object(_)) => String::new(),
            _ => continue,
        };
        match first.get(&shown) {
            Some(other) => found.push(FieldError {
                field: join(&path, field),
                message: message.replace("{value}", &shown).replace("{other}", other),
            }),
            None => drop(first.insert(shown, path)),
        }
    }
    found
}

/// Missing or empty. An object may be empty: `noCloud: {}` has a meaning.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Shortens a text for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}
