//! Reading and editing JSON by pointer, without panics: `serde_json`'s own index operators may
//! panic.

use serde_json::{Map, Value};

/// The text at a JSON pointer; empty if missing.
pub fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The list at a JSON pointer; empty if missing.
pub fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The item of this name in the list at a JSON pointer.
pub fn find_named<'a>(value: &'a Value, pointer: &str, name: &str) -> Option<&'a Value> {
    let mut items = list_at(value, pointer).iter();
    items.find(|item| text_at(item, "/name") == name)
}

/// The names of the items in the list at a JSON pointer.
pub fn names_at(value: &Value, pointer: &str) -> Vec<String> {
    let items = list_at(value, pointer).iter();
    items
        .map(|item| text_at(item, "/name").to_owned())
        .collect()
}

/// The list at a JSON pointer, to edit; empty if missing.
pub fn list_mut<'a>(value: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    match value.pointer_mut(pointer) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

/// Whether there is a `true` at a JSON pointer.
pub fn is_true_at(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool) == Some(true)
}

/// Whether there is an object at a JSON pointer.
pub fn is_object_at(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(Value::is_object)
}

/// A copy of the value at a JSON pointer; null if missing.
pub fn copy_at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or_default()
}

/// Sets the field at a JSON pointer; makes missing objects.
pub fn set(value: &mut Value, pointer: &str, new: Value) {
    *field_mut(value, pointer) = new;
}

/// Sets the field at a JSON pointer unless it has a value.
pub fn set_default(value: &mut Value, pointer: &str, default: impl Into<Value>) {
    let field = field_mut(value, pointer);
    if field.is_null() {
        *field = default.into();
    }
}

/// Adds to the list at a JSON pointer; makes a missing list.
pub fn push(value: &mut Value, pointer: &str, item: Value) {
    let field = field_mut(value, pointer);
    if let Value::Array(items) = field {
        items.push(item);
    } else {
        *field = Value::Array(vec![item]);
    }
}

/// Removes the items of this name from the list at a JSON pointer.
pub fn remove_named(value: &mut Value, pointer: &str, name: &str) {
    if let Some(items) = value.pointer_mut(pointer).and_then(Value::as_array_mut) {
        items.retain(|item| text_at(item, "/name") != name);
    }
}

/// The field at a JSON pointer; makes missing objects. Keys with `~` or `/` are not supported.
fn field_mut<'v>(value: &'v mut Value, pointer: &str) -> &'v mut Value {
    pointer.split('/').skip(1).fold(value, |here, key| {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        match here {
            Value::Object(members) => members.entry(key).or_insert(Value::Null),
            other => other,
        }
    })
}

/// A domain from the parts of its JSON that a test needs.
#[cfg(test)]
pub fn domain(json: Value) -> domain::Domain {
    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_made_where_they_are_missing() {
        let mut value = json!({"a": "text"});
        set(&mut value, "/a/b/c", json!(1));
        set_default(&mut value, "/a/b/c", 2);
        set_default(&mut value, "/a/d", 3);
        for item in ["x", "y", "x"] {
            push(&mut value, "/list", json!({"name": item}));
        }
        assert_eq!(list_at(&value, "/list").len(), 3);
        remove_named(&mut value, "/list", "x");
        assert_eq!(
            value,
            json!({"a": {"b": {"c": 1}, "d": 3}, "list": [{"name": "y"}]})
        );
    }
}
