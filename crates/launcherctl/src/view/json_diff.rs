//! What differs between two JSON documents.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// A member that is not the same in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// JSON pointer.
    pub pointer: String,
    /// Its value before; none if it is new.
    pub before: Option<Value>,
    /// Its value now; none if it is gone.
    pub after: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() {
            "/"
        } else {
            &self.pointer
        };
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{pointer}: {before} becomes {after}"),
            (Some(before), None) => write!(f, "{pointer}: {before} is gone"),
            (None, Some(after)) => write!(f, "{pointer}: {after} is new"),
            (None, None) => f.write_str(pointer),
        }
    }
}

/// The differences, by their pointers; objects and lists are compared member by member.
#[must_use]
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

/// serde_json reads no document that is nested deeper than 128 levels, so this ends.
fn compare(
    pointer: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let new = after.keys().filter(|name| !before.contains_key(*name));
            let mut names: Vec<&String> = before.keys().chain(new).collect();
            names.sort();
            for name in names {
                let member = format!("{pointer}/{name}");
                compare(&member, before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                let item = format!("{pointer}/{index}");
                compare(&item, before.get(index), after.get(index), found);
            }
        }
        (before, after) => found.push(Difference {
            pointer: pointer.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_compared_one_by_one() {
        let before = json!({"a": 1, "b": [1, 2], "c": {"d": "x"}});
        let after = json!({"a": 1, "b": [1, 3, 4], "c": {}, "e": null});
        let found = differences(&before, &after);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "/b/1: 2 becomes 3",
            "/b/2: 4 is new",
            "/c/d: \"x\" is gone",
            "/e: null is new",
        ];
        assert_eq!(texts, expected);
        assert!(differences(&after, &after).is_empty());
        assert_eq!(
            differences(&Value::Null, &json!(1))[0].to_string(),
            "/: null becomes 1"
        );
    }
}
