//! Names a value's type in YAML's words.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Violation, pointer};
use crate::json::{copy_at, list_at};
use crate::manifest::TypeError;

type Object = Map<String, Value>;

/// Problems of a field that should map names to texts.
#[must_use]
pub fn of_text_map(document: &Value, field: &str) -> Vec<Violation> {
    let map = copy_at(document, &pointer(field));
    if let Some(message) = wrong_type::<Object>(&map) {
        return vec![Violation {
            field: field.to_owned(),
            message,
        }];
    }
    let members = map.as_object().into_iter().flatten();
    members
        .filter_map(|(name, value)| {
            Some(Violation {
                field: format!("{field}.{name}"),
                message: wrong_type::<String>(value)?,
            })
        })
        .collect()
}

/// Why a value does not have a type. A missing or null value has any type.
pub(super) fn wrong_type<T: DeserializeOwned>(value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let error = serde_json::from_value::<T>(value.clone()).err()?;
    Some(TypeError::new(&error, value).to_string())
}

/// Like [`wrong_type`], for a list of objects.
pub(super) fn list_of_objects(value: &Value) -> Option<String> {
    let items = list_at(value, "").iter();
    let of_item = items.filter_map(wrong_type::<Object>).next();
    wrong_type::<Vec<Value>>(value).or(of_item)
}

#[cfg(test)]
mod tests {
    use super::super::tests::refused;
    use super::super::violations;
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_only_a_cluster_reads_have_their_types() {
        for (field, wrong, right) in [
            ("nodeSelector", json!(5), json!({"disk": "ssd"})),
            ("tolerations", json!({}), json!([{"operator": "Exists"}])),
            ("tolerations", json!(["a"]), json!([])),
            ("affinity", json!(5), json!({"nodeAffinity": {}})),
            ("schedulerName", json!(1.5), json!("mine")),
            (
                "readinessProbe",
                json!([]),
                json!({"tcpSocket": {"port": 22}}),
            ),
        ] {
            let found = refused(json!({(field): wrong}));
            assert_eq!(found, [format!("spec.{field}")], "{wrong}");
            assert_eq!(refused(json!({(field): right})), [""; 0], "{field}");
        }
        let node = json!({"nodeSelector": {"zone": 1, "disk": "ssd"}});
        assert_eq!(refused(node), ["spec.nodeSelector.zone"]);
    }

    #[test]
    fn labels_and_namespace_are_those_of_kubernetes() {
        let found = |metadata: Value| {
            let found = violations(&json!({"metadata": metadata}));
            let line = |it: Violation| format!("{}: {}", it.field, it.message);
            found.into_iter().map(line).collect::<Vec<_>>()
        };
        let text = "expected an object with fields, found a list";
        assert_eq!(
            found(json!({"labels": ["a"]})),
            [format!("metadata.labels: {text}")]
        );
        let number = found(json!({"labels": {"a": 5, "b": "5"}}));
        assert_eq!(
            number,
            ["metadata.labels.a: expected text, found 5; write \"5\" with quotes"]
        );
        let namespace = found(json!({"namespace": "A_B"}));
        assert!(
            namespace.len() == 1 && namespace[0].starts_with("metadata.namespace: \"A_B\" is not"),
            "{namespace:?}"
        );
        let sound = json!({"namespace": "tests-1", "labels": {"a": "b"}});
        assert_eq!(found(sound), [""; 0]);
    }
}
