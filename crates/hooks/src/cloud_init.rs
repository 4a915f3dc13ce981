//! Cloud-init data in the two forms of `PreCloudInitIso`:
//!
//! ```text
//!  cloudInitData           KubeVirt's CloudInitData as JSON
//!  cloudInitNoCloudSource  the older form: user and network data only
//! ```

use prost::bytes::Bytes;
use serde_json::{Map, Value, json};

use super::diff::{Change, Changes};
use domain::excerpt;

/// Limit of the JSON values in a field of an answer. User data counts as one value. The metadata
/// has about ten values for each device.
pub const MAX_VALUES: usize = 1 << 16;

/// The data in both forms, as JSON.
#[derive(Debug, Clone, Default)]
pub struct CloudInitForms {
    /// All data, with the field names of KubeVirt's Go struct `CloudInitData`.
    pub cloud_init_data: Bytes,
    /// User and network data, as in the API's `CloudInitNoCloudSource`.
    pub cloud_init_no_cloud_source: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloudInitError {
    #[error("{field}")]
    Json {
        field: &'static str,
        source: serde_json::Error,
    },
    /// A field of the answer is JSON, but not an object.
    #[error("{field} is not a JSON object")]
    NotAnObject { field: &'static str },
    /// A field of the answer has more values than [`MAX_VALUES`].
    #[error("{field} has more than {MAX_VALUES} values")]
    TooManyValues { field: &'static str },
    /// Neither form has enough for an image.
    #[error("neither cloudInitData nor cloudInitNoCloudSource has user data and metadata")]
    Incomplete,
    /// The older form is present and empty.
    #[error("cloudInitNoCloudSource has neither userData nor networkData")]
    Empty,
}

/// Builds the call's parameters from `data`, which has the field names of KubeVirt's Go struct.
pub fn encode(data: &Value) -> CloudInitForms {
    let mut no_cloud = Map::new();
    for (from, to) in [("UserData", "userData"), ("NetworkData", "networkData")] {
        let text = text_of(data, from);
        if !text.is_empty() {
            no_cloud.insert(to.to_owned(), Value::from(text));
        }
    }
    CloudInitForms {
        cloud_init_data: Bytes::from(data.to_string()),
        cloud_init_no_cloud_source: Bytes::from(Value::Object(no_cloud).to_string()),
    }
}

pub fn decode(before: &Value, answer: &CloudInitForms) -> Result<Value, CloudInitError> {
    let data = parse("cloudInitData", &answer.cloud_init_data);
    let unused = match data {
        Ok(Some(data)) if is_complete(&data) => return Ok(data),
        Ok(_) => CloudInitError::Incomplete,
        Err(error) => error,
    };
    let no_cloud = parse("cloudInitNoCloudSource", &answer.cloud_init_no_cloud_source)?;
    let Some(no_cloud) = no_cloud else {
        return Err(unused);
    };
    let (user_data, network_data) = (
        text_of(&no_cloud, "userData"),
        text_of(&no_cloud, "networkData"),
    );
    if user_data.is_empty() && network_data.is_empty() {
        return Err(CloudInitError::Empty);
    }
    // The older form has no other fields, so the others keep their values.
    let mut data = before.as_object().cloned().unwrap_or_default();
    data.insert("UserData".to_owned(), json!(user_data));
    data.insert("NetworkData".to_owned(), json!(network_data));
    Ok(Value::Object(data))
}

/// The changed fields with their sizes. The content is often secret, so it is not logged.
pub fn changes(before: &Value, after: &Value) -> Changes {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let size = |value: &Value| match value {
        Value::String(text) => format!("{} bytes", text.len()),
        other => format!("{} bytes", other.to_string().len()),
    };
    let added_or_changed = after.iter().filter_map(|(name, value)| {
        let path = shown(name);
        match before.get(name) {
            None => Some(Change::Added {
                path,
                value: size(value),
            }),
            Some(old) if old != value => Some(Change::Changed {
                path,
                before: size(old),
                after: size(value),
            }),
            Some(_) => None,
        }
    });
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|name| Change::Removed { path: shown(name) });
    let mut changes = Changes::default();
    // Breaks once MAX_CHANGES is reached.
    let _ = added_or_changed
        .chain(removed)
        .try_for_each(|change| changes.push(change));
    changes
}

/// Cuts a name. The launcher's own names are short.
fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 80;
    excerpt(name, MAX_CHARS)
}

/// A JSON object, or `None` for an empty field.
fn parse(field: &'static str, json: &[u8]) -> Result<Option<Value>, CloudInitError> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if has_more_values(json, MAX_VALUES) {
        return Err(CloudInitError::TooManyValues { field });
    }
    match serde_json::from_slice(json) {
        Ok(data @ Value::Object(_)) => Ok(Some(data)),
        Ok(_) => Err(CloudInitError::NotAnObject { field }),
        Err(source) => Err(CloudInitError::Json { field, source }),
    }
}

/// Whether a JSON text has more values than `limit`. A value of two bytes, `0,`, takes many times
/// as much memory once parsed, so values are counted before that. Each value but the first follows
/// a comma, a colon or an opening bracket outside a string.
fn has_more_values(json: &[u8], limit: usize) -> bool {
    let (mut in_text, mut is_escaped) = (false, false);
    let starts_value = |byte: &u8| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'"' if !was_escaped => in_text = !in_text,
            b'\\' if in_text => is_escaped = !was_escaped,
            b',' | b':' | b'[' | b'{' => return !in_text,
            _ => {}
        }
        false
    };
    json.iter()
        .copied()
        .filter(starts_value)
        .nth(limit)
        .is_some()
}

/// Whether the data is enough for a cloud-init image.
fn is_complete(data: &Value) -> bool {
    let has = |name: &str| data.get(name).is_some_and(|value| !value.is_null());
    !text_of(data, "UserData").is_empty() && (has("NoCloudMetaData") || has("ConfigDriveMetaData"))
}

fn text_of<'v>(data: &'v Value, name: &str) -> &'v str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn before() -> Value {
        json!({"DataSource": "noCloud", "NoCloudMetaData": {"instance-id": "vm.ns"}, "UserData": "#old", "NetworkData": "", "VolumeName": "ci"})
    }

    fn answer(data: &str, no_cloud: &str) -> Result<Value, CloudInitError> {
        decode(
            &before(),
            &CloudInitForms {
                cloud_init_data: Bytes::from(data.to_owned()),
                cloud_init_no_cloud_source: Bytes::from(no_cloud.to_owned()),
            },
        )
    }

    #[test]
    fn both_forms_are_sent() {
        let given = encode(&before());
        assert_eq!(
            serde_json::from_slice::<Value>(&given.cloud_init_data).unwrap(),
            before()
        );
        assert_eq!(
            &given.cloud_init_no_cloud_source[..],
            br##"{"userData":"#old"}"##
        );
    }

    #[test]
    fn cloud_init_data_is_used_when_complete() {
        let data = before().to_string().replace("#old", "#new");
        assert_eq!(
            answer(&data, r##"{"userData":"#legacy"}"##).unwrap()["UserData"],
            "#new"
        );
    }

    #[test]
    fn no_cloud_source_is_used_otherwise_and_keeps_the_other_fields() {
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
    fn values_are_counted_before_they_are_read() {
        let with = |data: &str| {
            answer(
                &format!(r##"{{"UserData":"#new","NoCloudMetaData":{data}}}"##),
                "",
            )
        };
        assert!(with(&format!("[{}0]", "0,".repeat(60_000))).is_ok());
        let error = with(&format!("[{}0]", "0,".repeat(MAX_VALUES))).unwrap_err();
        assert!(
            error.to_string().ends_with("more than 65536 values"),
            "{error}"
        );
        // Inside a string, nothing counts as a value, whatever is escaped.
        let text = r#"[{,:\"[{,:\\"#.repeat(MAX_VALUES / 4);
        assert!(with(&format!("\"{text}\"")).is_ok());
    }

    #[test]
    fn the_changes_of_many_fields_are_bounded() {
        let fields = (0..1_000).map(|n| (format!("{n:01000}"), json!(n)));
        let changes = changes(&before(), &Value::Object(fields.collect()));
        assert!(changes.more);
        assert!(serde_json::to_string(&changes).unwrap().len() < 50_000);
    }

    #[test]
    fn an_answer_without_data_is_refused() {
        for (data, no_cloud, expected) in [
            ("", "", "neither cloudInitData"),
            ("", "{}", "neither userData"),
            ("{", "", "cloudInitData: EOF while parsing"),
            ("", "[]", "cloudInitNoCloudSource is not a JSON object"),
        ] {
            let error = os::logging::chain(&answer(data, no_cloud).unwrap_err());
            assert!(error.contains(expected), "{data} {no_cloud}: {error}");
        }
    }
}
