//! The cloud-init data as sidecars see it, in the two forms that the protocol has for it.

use prost::bytes::Bytes;
use serde_json::{Map, Value, json};

use super::call::CloudInit;

/// Both forms of the data; the old one holds only user and network data.
pub fn given(data: &Value) -> CloudInit {
    let mut no_cloud = Map::new();
    for (from, to) in [("UserData", "userData"), ("NetworkData", "networkData")] {
        if let Some(text) = data
            .get(from)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            no_cloud.insert(to.to_owned(), Value::from(text));
        }
    }
    CloudInit {
        data: Bytes::from(data.to_string()),
        no_cloud: Bytes::from(Value::Object(no_cloud).to_string()),
    }
}

/// The data that a sidecar answered for `before`.
///
/// A sidecar from before v1alpha2's `cloudInitData` answers only the old form. Then, and when the
/// new form has no user data or no metadata, the old one counts, as in KubeVirt.
///
/// # Errors
/// What is wrong with the answer.
pub fn answered(before: &Value, answer: &CloudInit) -> Result<Value, String> {
    let data = parse("cloudInitData", &answer.data);
    if let Ok(Some(data)) = data
        .as_ref()
        .map(|data| data.as_ref().filter(|data| is_complete(data)))
    {
        return Ok(data.clone());
    }
    let old = match parse("cloudInitNoCloudSource", &answer.no_cloud)? {
        Some(old) => old,
        None => {
            return Err(data.err().unwrap_or_else(|| {
                "neither of its two forms has user data and metadata".to_owned()
            }));
        }
    };
    let text = |name: &str| {
        old.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if text("userData").is_empty() && text("networkData").is_empty() {
        return Err("cloudInitNoCloudSource has neither userData nor networkData".to_owned());
    }
    // What the old form cannot say stays as it was.
    let mut data = before.as_object().cloned().unwrap_or_default();
    data.insert("UserData".to_owned(), json!(text("userData")));
    data.insert("NetworkData".to_owned(), json!(text("networkData")));
    Ok(Value::Object(data))
}

fn parse(field: &str, bytes: &[u8]) -> Result<Option<Value>, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(data)) => Ok(Some(Value::Object(data))),
        Ok(_) => Err(format!("{field} is no JSON object")),
        Err(error) => Err(format!("{field}: {error}")),
    }
}

/// Whether an ISO image can be made of it.
fn is_complete(data: &Value) -> bool {
    let there = |name: &str| data.get(name).is_some_and(|value| !value.is_null());
    data.get("UserData")
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty())
        && (there("NoCloudMetaData") || there("ConfigDriveMetaData"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn before() -> Value {
        json!({"DataSource": "noCloud", "NoCloudMetaData": {"instance-id": "vm.ns"}, "UserData": "#old", "NetworkData": "", "VolumeName": "ci"})
    }

    fn answer(data: &str, no_cloud: &str) -> Result<Value, String> {
        answered(
            &before(),
            &CloudInit {
                data: Bytes::from(data.to_owned()),
                no_cloud: Bytes::from(no_cloud.to_owned()),
            },
        )
    }

    #[test]
    fn both_forms_are_given() {
        let given = given(&before());
        assert_eq!(
            serde_json::from_slice::<Value>(&given.data).unwrap(),
            before()
        );
        assert_eq!(&given.no_cloud[..], br##"{"userData":"#old"}"##);
    }

    #[test]
    fn the_new_form_counts_where_it_is_complete() {
        let data = before().to_string().replace("#old", "#new");
        assert_eq!(
            answer(&data, r##"{"userData":"#legacy"}"##).unwrap()["UserData"],
            "#new"
        );
    }

    #[test]
    fn the_old_form_counts_else_and_what_it_cannot_say_stays() {
        for data in ["", "{}", "null", r#"{"UserData":""}"#] {
            let got = answer(data, r##"{"userData":"#legacy"}"##).unwrap();
            assert_eq!(
                (
                    &got["UserData"],
                    &got["VolumeName"],
                    &got["NoCloudMetaData"]
                ),
                (
                    &json!("#legacy"),
                    &json!("ci"),
                    &before()["NoCloudMetaData"]
                )
            );
        }
    }

    #[test]
    fn an_answer_without_data_is_refused() {
        assert!(answer("", "").unwrap_err().contains("neither"));
        assert!(answer("", "{}").unwrap_err().contains("neither"));
        assert!(answer("{", "").unwrap_err().starts_with("cloudInitData: "));
        assert!(answer("", "[]").unwrap_err().contains("no JSON object"));
    }
}
