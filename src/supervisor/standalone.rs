//! `STANDALONE_VMI`: a virtual machine without a cluster.

use prost::bytes::Bytes;
use serde_json::Value;

use super::environment::Environment;
use pod::LauncherFlags;

#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// Neither YAML nor JSON (which is also YAML).
    #[error("it is neither YAML nor JSON")]
    Text(#[source] serde_saphyr::Error),
    #[error("it has no metadata.name")]
    NoName,
}

/// The VMI from the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct StandaloneVmi {
    name: String,
    namespace: String,
    uid: String,
    /// The VMI's JSON as virt-handler would send it.
    pub json: Bytes,
}

/// Reads `STANDALONE_VMI`, if set.
///
/// # Errors
/// The text is neither YAML nor JSON, or the VMI has no name.
pub fn of(environment: &Environment) -> Result<Option<StandaloneVmi>, StandaloneError> {
    environment.standalone_vmi.as_deref().map(read).transpose()
}

fn read(text: &str) -> Result<StandaloneVmi, StandaloneError> {
    let mut document: Value = serde_saphyr::from_str(text).map_err(StandaloneError::Text)?;
    let field = |name: &str| {
        let value = document.get("metadata")?.get(name)?;
        value
            .as_str()
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    };
    let name = field("name").ok_or(StandaloneError::NoName)?;
    // The API server would have set the namespace and the UID.
    let namespace = field("namespace").unwrap_or_else(|| "default".to_owned());
    let uid = field("uid").unwrap_or_else(|| name.clone());
    let metadata = document.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or(StandaloneError::NoName)?;
    metadata.insert("namespace".to_owned(), namespace.as_str().into());
    metadata.insert("uid".to_owned(), uid.as_str().into());
    Ok(StandaloneVmi {
        name,
        namespace,
        uid,
        json: Bytes::from(document.to_string()),
    })
}

impl StandaloneVmi {
    /// Completes the flags from the VMI and allows emulation, as KubeVirt does here.
    pub fn complete(&self, flags: &mut LauncherFlags) {
        flags.allow_emulation = true;
        for (flag, value) in [
            (&mut flags.name, &self.name),
            (&mut flags.namespace, &self.namespace),
            (&mut flags.uid, &self.uid),
        ] {
            if flag.is_empty() {
                flag.clone_from(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str =
        "metadata:\n  name: demo\n  uid: \"1-2\"\nspec:\n  domain:\n    devices: {}\n";

    #[test]
    fn yaml_and_json_are_read() {
        let vmi = read(YAML).unwrap();
        let json: Value = serde_json::from_slice(&vmi.json).unwrap();
        assert_eq!(json["metadata"]["namespace"], "default");
        assert_eq!(json["spec"]["domain"]["devices"], serde_json::json!({}));
        let vmi = read(r#"{"metadata":{"name":"demo","namespace":"ns"}}"#).unwrap();
        assert_eq!(
            (vmi.name.as_str(), vmi.namespace.as_str(), vmi.uid.as_str()),
            ("demo", "ns", "demo")
        );
        assert!(String::from_utf8_lossy(&vmi.json).contains(r#""uid":"demo""#));
    }

    #[test]
    fn flags_are_completed_not_replaced() {
        let mut flags = LauncherFlags {
            name: "other".into(),
            ..LauncherFlags::default()
        };
        read(YAML).unwrap().complete(&mut flags);
        assert_eq!(
            (
                flags.name.as_str(),
                flags.namespace.as_str(),
                flags.uid.as_str()
            ),
            ("other", "default", "1-2")
        );
        assert!(flags.allow_emulation);
    }

    #[test]
    fn what_is_no_vmi_is_refused() {
        assert!(matches!(read("a: [1"), Err(StandaloneError::Text(_))));
        assert!(matches!(read("just text"), Err(StandaloneError::NoName)));
        assert!(matches!(read("metadata: {}"), Err(StandaloneError::NoName)));
        assert!(matches!(read("[]"), Err(StandaloneError::NoName)));
    }
}
