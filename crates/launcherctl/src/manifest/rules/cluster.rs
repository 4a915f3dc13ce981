//! Types of the fields that only a cluster reads, such as those of its scheduler: its API refuses other ones.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Found, Violation, is_label, pointer};
use crate::json::{copy_at, list_at, text_at};
use crate::manifest::TypeError;

type Object = Map<String, Value>;
/// Of a value, why it does not have a type.
type Check = fn(&Value) -> Option<String>;

const TYPES: [(&str, Check); 11] = [
    ("spec.affinity", wrong_type::<Object>),
    ("spec.dnsConfig", wrong_type::<Object>),
    ("spec.readinessProbe", wrong_type::<Object>),
    ("spec.livenessProbe", wrong_type::<Object>),
    ("spec.tolerations", not_a_list_of_objects),
    ("spec.topologySpreadConstraints", not_a_list_of_objects),
    ("spec.schedulerName", wrong_type::<String>),
    ("spec.priorityClassName", wrong_type::<String>),
    ("spec.serviceAccountName", wrong_type::<String>),
    ("spec.evictionStrategy", wrong_type::<String>),
    ("spec.dnsPolicy", wrong_type::<String>),
];

impl Found {
    pub(super) fn cluster_fields(&mut self, vmi: &Value) {
        let namespace = text_at(vmi, "/metadata/namespace");
        if !namespace.is_empty() && !is_label(namespace) {
            self.add("metadata.namespace", super::not_a_label(namespace));
        }
        for (field, check) in TYPES {
            if let Some(message) = check(&copy_at(vmi, &pointer(field))) {
                self.add(field, message);
            }
        }
        for field in ["metadata.labels", "spec.nodeSelector"] {
            self.0.extend(of_text_map(vmi, field));
        }
    }
}

/// What is wrong with a field that should have names, each with a text.
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

/// Why a value does not have a type. One that is missing or null has each.
fn wrong_type<T: DeserializeOwned>(value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let error = serde_json::from_value::<T>(value.clone()).err()?;
    Some(TypeError::new(&error, value).to_string())
}

fn not_a_list_of_objects(value: &Value) -> Option<String> {
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
