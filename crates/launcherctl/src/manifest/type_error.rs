//! A wrongly typed field, described in YAML's words instead of Rust's.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the deserializer expects, and our word for it. Prefixes match.
const EXPECTED: [(&str, &str); 9] = [
    ("a boolean", "true or false"),
    ("a string", "text"),
    ("a sequence", "a list, with a \"-\" before each item"),
    ("a map", "an object with fields"),
    ("struct ", "an object with fields"),
    ("u", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("i32", "a whole number"),
    ("f64", "a number"),
];

/// The expected and the actual type, from a deserializer's error and the field's value.
pub fn type_problem(error: &serde_json::Error, value: &Value) -> String {
    let text = error.to_string();
    let Some((_, expected)) = text.rsplit_once(", expected ") else {
        return text;
    };
    if !text.starts_with("invalid ") {
        return text;
    }
    let is_of = |(word, _): &&(&str, &str)| expected.starts_with(word);
    let known = EXPECTED
        .iter()
        .find(is_of)
        .filter(|_| !expected.starts_with("unit"));
    let expected = known.map_or(expected, |(_, word)| word);
    format!("expected {expected}, found {}", found(value, expected))
}

/// Why a value does not have a type. A missing or null value has any type.
pub fn wrong_type<T: DeserializeOwned>(value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let error = serde_json::from_value::<T>(value.clone()).err()?;
    Some(type_problem(&error, value))
}

fn found(value: &Value, expected: &str) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object with fields".to_owned(),
        Value::String(text) if expected != "text" && is_plain(text) => {
            format!("the text {text:?}; write {text} without quotes")
        }
        Value::String(text) => format!("the text {text:?}"),
        // YAML reads 1.10 and true as other types than text.
        scalar if expected == "text" => format!("{scalar}; write it in quotes"),
        scalar => scalar.to_string(),
    }
}

/// Whether it would not be text without its quotes.
fn is_plain(text: &str) -> bool {
    ["true", "false"].contains(&text) || text.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message<T: DeserializeOwned>(value: Value) -> String {
        wrong_type::<T>(&value).unwrap()
    }

    #[test]
    fn types_have_words_that_people_know() {
        assert_eq!(
            message::<bool>(json!("no")),
            "expected true or false, found the text \"no\""
        );
        assert_eq!(
            message::<i64>(json!("30")),
            "expected a whole number, found the text \"30\"; write 30 without quotes"
        );
        assert_eq!(
            message::<u32>(json!(-1)),
            "expected a whole number, 0 or more, found -1"
        );
        assert_eq!(
            message::<String>(json!(1.1)),
            "expected text, found 1.1; write it in quotes"
        );
        assert_eq!(
            message::<Vec<u8>>(json!({})),
            "expected a list, with a \"-\" before each item, found an object with fields"
        );
        let of_struct = message::<api::vmi::Vmi>(json!("vm"));
        assert_eq!(
            of_struct,
            "expected an object with fields, found the text \"vm\""
        );
    }
}
