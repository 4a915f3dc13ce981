//! The answers as JSON are as docs/launcherctl.schema.json describes them. The check knows the
//! keywords of JSON Schema that the file uses, and no others.

use serde_json::Value;

/// Checks an answer of this verb.
#[track_caller]
pub fn check(verb: &str, answer: &Value) {
    let schema = schema();
    let definition = &schema["$defs"][verb];
    assert!(definition.is_object(), "no definition of {verb}");
    if let Err(why) = matches(&schema, definition, answer, verb) {
        panic!("{why}\n{answer:#}");
    }
}

fn schema() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/launcherctl.schema.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn matches(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let fails = |why: String| Err(format!("{place}: {why}"));
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "description" => {}
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                matches(root, root.pointer(pointer).unwrap(), value, place)?;
            }
            "type" => {
                let allowed: Vec<&str> = match rule {
                    Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
                    one => vec![one.as_str().unwrap()],
                };
                if !allowed.iter().any(|name| is_of_type(value, name)) {
                    return fails(format!("{value} is not of {allowed:?}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return fails(format!("{value} is not one of {rule}"));
            }
            "enum" => {}
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    matches(root, rule, item, &format!("{place}[{index}]"))?;
                }
            }
            "required" => {
                let names = rule.as_array().unwrap().iter();
                let mut names = names.map(|name| name.as_str().unwrap());
                if let Some(name) = names.find(|name| value.get(name).is_none()) {
                    return fails(format!("{name} is missing"));
                }
            }
            "properties" | "additionalProperties" => {
                let known = &schema["properties"];
                for (name, member) in value.as_object().into_iter().flatten() {
                    let is_known = known.get(name).is_some();
                    let place = format!("{place}.{name}");
                    match (keyword.as_str(), rule) {
                        ("properties", _) if is_known => {
                            matches(root, &rule[name], member, &place)?
                        }
                        ("properties", _) => {}
                        (_, Value::Bool(false)) if !is_known => {
                            return Err(format!("{place} is not described"));
                        }
                        (_, Value::Object(_)) => matches(root, rule, member, &place)?,
                        _ => {}
                    }
                }
            }
            "anyOf" | "oneOf" => {
                let choices = rule.as_array().unwrap().iter();
                let fits = choices.filter(|choice| matches(root, choice, value, place).is_ok());
                let count = fits.count();
                if count == 0 || (count > 1 && keyword == "oneOf") {
                    return fails(format!("{count} of its forms fit {value}"));
                }
            }
            other => return fails(format!("unknown keyword {other}")),
        }
    }
    Ok(())
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    }
}
