//! Cloud-init data in the two forms of `PreCloudInitIso`:
//!
//! ```text
//!  cloudInitData           KubeVirt's CloudInitData as JSON
//!  cloudInitNoCloudSource  the older form: user and network data only
//! ```

use prost::bytes::Bytes;
use serde_json::{Map, Value, json};

use super::diff::{Change, Changes};
/// The data of `PreCloudInitIso` in both forms, as JSON.
pub use api::proto::hooks::v1alpha3::PreCloudInitIsoResult as CloudInitForms;
use domain::excerpt;

/// Limit of the JSON values in a field of an answer. User data counts as one value. The metadata
/// has about ten values for each device.
pub const MAX_VALUES: usize = 1 << 16;

const TEXT: &str = "a string";
const NUMBER: &str = "a number";
const LIST: &str = "a list";
const OBJECT: &str = "an object";

/// A type in Go.
enum Shape {
    Text,
    Number,
    ListOf(&'static Shape),
    /// An object with any names.
    MapOf(&'static Shape),
    Struct(&'static [(&'static str, Shape)]),
}

impl Shape {
    fn name(&self) -> &'static str {
        match self {
            Self::Text => TEXT,
            Self::Number => NUMBER,
            Self::ListOf(_) => LIST,
            Self::MapOf(_) | Self::Struct(_) => OBJECT,
        }
    }
}

/// KubeVirt's Go structs: `pkg/cloud-init/cloud-init.go`.
const CLOUD_INIT_DATA: Shape = Shape::Struct(&[
    ("DataSource", Shape::Text),
    ("NoCloudMetaData", NO_CLOUD),
    ("ConfigDriveMetaData", CONFIG_DRIVE),
    ("UserData", Shape::Text),
    ("NetworkData", Shape::Text),
    ("DevicesData", Shape::ListOf(&DEVICE)),
    ("VolumeName", Shape::Text),
]);
const NO_CLOUD: Shape = Shape::Struct(&[
    ("instance-type", Shape::Text),
    ("instance-id", Shape::Text),
    ("local-hostname", Shape::Text),
    ("public-keys", Shape::MapOf(&Shape::Text)),
]);
const CONFIG_DRIVE: Shape = Shape::Struct(&[
    ("instance_type", Shape::Text),
    ("instance_id", Shape::Text),
    ("local_hostname", Shape::Text),
    ("hostname", Shape::Text),
    ("uuid", Shape::Text),
    ("devices", Shape::ListOf(&DEVICE)),
    ("public_keys", Shape::MapOf(&Shape::Text)),
]);
const DEVICE: Shape = Shape::Struct(&[
    ("type", Shape::Text),
    ("bus", Shape::Text),
    ("address", Shape::Text),
    ("mac", Shape::Text),
    ("serial", Shape::Text),
    ("numaNode", Shape::Number),
    ("alignedCPUs", Shape::ListOf(&Shape::Number)),
    ("tags", Shape::ListOf(&Shape::Text)),
]);

/// What the script that printed the answer probably did wrong.
fn hint(begin: &str, error: &serde_json::Error) -> String {
    if !begin.starts_with('{') {
        return format!(
            ": it begins with {begin:?}; a script's standard output has the answer only"
        );
    }
    match error.to_string().as_str() {
        text if text.starts_with("control character") => {
            "; echo of sh makes line breaks of \\n, which printf '%s\\n' \"$4\" leaves".to_owned()
        }
        text if text.starts_with("key must be a string") => {
            "; Python prints a dictionary with single quotes, json.dumps makes JSON of it"
                .to_owned()
        }
        _ => String::new(),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CloudInitError {
    #[error("{field} is not JSON{}", hint(begin, source))]
    Json {
        field: &'static str,
        begin: String,
        source: serde_json::Error,
    },
    /// A field of the answer is JSON, but not an object.
    #[error("{field} is not a JSON object")]
    NotAnObject { field: &'static str },
    /// A field of the answer has more values than [`MAX_VALUES`].
    #[error("{field} has more than {MAX_VALUES} values")]
    TooManyValues { field: &'static str },
    /// A field of the answer has another type than in KubeVirt's Go struct.
    #[error("cloudInitData: {field} is {found}, not {wanted}")]
    FieldType {
        field: String,
        found: &'static str,
        wanted: &'static str,
    },
    /// No answer at all.
    #[error("the answer is empty; a sidecar that changes nothing returns the data it was given")]
    Nothing,
    /// Not enough for an image.
    #[error(
        "cloudInitData has no {missing}; a sidecar returns all of the data it was given, with its changes"
    )]
    Incomplete { missing: &'static str },
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

/// Returns the data, and the names in the answer that KubeVirt does not know. The data lack these.
pub fn decode(
    before: &Value,
    answer: &CloudInitForms,
) -> Result<(Value, Vec<String>), CloudInitError> {
    let data = parse("cloudInitData", &answer.cloud_init_data);
    let mut unknown = Vec::new();
    let data = data.and_then(|data| {
        let known = |data| known_parts(&CLOUD_INIT_DATA, "", data, &mut unknown);
        data.map(known).transpose()
    });
    let unused = match data {
        Ok(Some(data)) => match missing(&data) {
            None => return Ok((data, unknown)),
            Some(missing) => CloudInitError::Incomplete { missing },
        },
        Ok(None) => CloudInitError::Nothing,
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
    // D-hook-19 (docs/differences.md).
    let mut data = before.as_object().cloned().unwrap_or_default();
    data.insert("UserData".to_owned(), json!(user_data));
    data.insert("NetworkData".to_owned(), json!(network_data));
    Ok((Value::Object(data), Vec::new()))
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

/// The first line, cut, for an error: it may be an error message that a script printed. JSON is not
/// shown, because it may be secret.
fn begin(json: &[u8]) -> String {
    const MAX_CHARS: usize = 40;
    let text = String::from_utf8_lossy(json);
    let line = text.trim_start().lines().next().unwrap_or_default();
    match line.starts_with('{') {
        true => "{".to_owned(),
        false => excerpt(line, MAX_CHARS),
    }
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
        Err(source) => Err(CloudInitError::Json {
            field,
            begin: begin(json),
            source,
        }),
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

/// Which part of a cloud-init image the data lacks.
fn missing(data: &Value) -> Option<&'static str> {
    let has = |name: &str| data.get(name).is_some_and(|value| !value.is_null());
    if text_of(data, "UserData").is_empty() {
        return Some("UserData");
    }
    let metadata = "NoCloudMetaData or ConfigDriveMetaData";
    (!has("NoCloudMetaData") && !has("ConfigDriveMetaData")).then_some(metadata)
}

/// Keeps the parts of a value that the Go type `shape` has: Go reads the names of a struct in any
/// case and ignores unknown ones. Adds those to `unknown`. `field` is the path of the value; empty
/// for the whole data.
fn known_parts(
    shape: &Shape,
    field: &str,
    value: Value,
    unknown: &mut Vec<String>,
) -> Result<Value, CloudInitError> {
    let of_field = |name: &str| match field {
        "" => name.to_owned(),
        field => format!("{field}.{name}"),
    };
    Ok(match (shape, value) {
        (Shape::ListOf(shape), Value::Array(items)) => {
            let items = items.into_iter().enumerate();
            let items = items
                .map(|(index, it)| known_parts(shape, &format!("{field}[{index}]"), it, unknown));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        (Shape::MapOf(shape), Value::Object(items)) => {
            let items = items.into_iter().map(|(name, item)| {
                let item = known_parts(shape, &of_field(&shown(&name)), item, unknown)?;
                Ok((name, item))
            });
            Value::Object(items.collect::<Result<_, _>>()?)
        }
        (Shape::Struct(parts), Value::Object(given)) => {
            let mut known = Map::new();
            for (name, value) in given {
                let mut parts = parts.iter();
                match parts.find(|(it, _)| it.eq_ignore_ascii_case(&name)) {
                    Some((name, shape)) => {
                        let value = known_parts(shape, &of_field(name), value, unknown)?;
                        known.insert((*name).to_owned(), value);
                    }
                    None => unknown.push(of_field(&shown(&name))),
                }
            }
            Value::Object(known)
        }
        (_, Value::Null) => Value::Null,
        (Shape::Text, text @ Value::String(_)) => text,
        (Shape::Number, number @ Value::Number(_)) => number,
        (shape, other) => {
            return Err(CloudInitError::FieldType {
                field: field.to_owned(),
                found: type_of(&other),
                wanted: shape.name(),
            });
        }
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => NUMBER,
        Value::String(_) => TEXT,
        Value::Array(_) => LIST,
        Value::Object(_) => OBJECT,
    }
}

fn text_of<'v>(data: &'v Value, name: &str) -> &'v str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Value {
        json!({"DataSource": "noCloud", "NoCloudMetaData": {"instance-id": "vm.ns"}, "UserData": "#old", "NetworkData": "", "VolumeName": "ci"})
    }

    fn answer(data: &str, no_cloud: &str) -> Result<Value, CloudInitError> {
        let forms = CloudInitForms {
            cloud_init_data: Bytes::from(data.to_owned()),
            cloud_init_no_cloud_source: Bytes::from(no_cloud.to_owned()),
        };
        decode(&before(), &forms).map(|(data, _)| data)
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
    // D-hook-19 (docs/differences.md).
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
    fn names_are_read_in_any_case_and_unknown_ones_are_left_out() {
        let mut data = before();
        data["userData"] = json!("#new");
        data["Foo"] = json!(1);
        data["NoCloudMetaData"]["hostname"] = json!("other");
        data["NoCloudMetaData"]["public-keys"] = json!({"me": "ssh-ed25519 A"});
        let (got, unknown) = decode(&before(), &encode(&data)).unwrap();
        assert_eq!(unknown, ["Foo", "NoCloudMetaData.hostname"]);
        let mut expected = before();
        expected["UserData"] = json!("#new");
        expected["NoCloudMetaData"]["public-keys"] = json!({"me": "ssh-ed25519 A"});
        assert_eq!(got, expected);
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        for (pointer, value, expected) in [
            (
                "/NoCloudMetaData/instance-id",
                json!(5),
                "NoCloudMetaData.instance-id is a number, not a string",
            ),
            (
                "/NoCloudMetaData/public-keys",
                json!(["ssh-ed25519 A"]),
                "NoCloudMetaData.public-keys is a list, not an object",
            ),
            (
                "/NoCloudMetaData/public-keys",
                json!({"me": 5}),
                "NoCloudMetaData.public-keys.me is a number, not a string",
            ),
            (
                "/DevicesData",
                json!([{"tags": ["a", 5]}]),
                "DevicesData[0].tags[1] is a number, not a string",
            ),
            (
                "/VolumeName",
                json!([]),
                "VolumeName is a list, not a string",
            ),
            (
                "/UserData",
                json!({}),
                "UserData is an object, not a string",
            ),
        ] {
            let mut data = before();
            let (above, name) = pointer.rsplit_once('/').unwrap();
            data.pointer_mut(above).unwrap()[name] = value;
            let error = answer(&data.to_string(), "").unwrap_err().to_string();
            assert_eq!(error, format!("cloudInitData: {expected}"));
        }
    }

    #[test]
    fn values_are_counted_before_they_are_read() {
        let with = |name: &str, data: &str| {
            let metadata = r#""NoCloudMetaData":{}"#;
            answer(
                &format!(r##"{{"UserData":"#new",{metadata},"{name}":{data}}}"##),
                "",
            )
        };
        assert!(with("DevicesData", &format!("[{}null]", "null,".repeat(60_000))).is_ok());
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        let error = with("DevicesData", &many).unwrap_err();
        assert!(
            error.to_string().ends_with("more than 65536 values"),
            "{error}"
        );
        // Inside a string, nothing counts as a value, whatever is escaped.
        let text = r#"[{,:\"[{,:\\"#.repeat(MAX_VALUES / 4);
        assert!(with("NetworkData", &format!("\"{text}\"")).is_ok());
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
            ("", "", "the answer is empty"),
            ("{}", "", "cloudInitData has no UserData; "),
            (
                r#"{"UserData":"a"}"#,
                "",
                "cloudInitData has no NoCloudMetaData or ",
            ),
            ("", "{}", "neither userData"),
            ("{", "", "cloudInitData is not JSON: EOF"),
            ("{'a': 1}", "", "json.dumps makes JSON of it: key must"),
            (
                "{\"a\": \"x\ny\"}",
                "",
                "which printf '%s\\n' \"$4\" leaves: control",
            ),
            ("go\n{}", "", "it begins with \"go\"; "),
            ("", "[]", "cloudInitNoCloudSource is not a JSON object"),
        ] {
            let error = os::logging::chain(&answer(data, no_cloud).unwrap_err());
            assert!(error.contains(expected), "{data} {no_cloud}: {error}");
        }
    }
}
