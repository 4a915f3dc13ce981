//! Devices given by resource claims (DRA): their attributes are in files of the pod (Kubernetes KEP
//! 5304).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::error::unusable;
use super::super::safe_path::{Dir, Found, checked_name};
use super::super::{PodError, Root};
use api::pod_paths;
use api::vmi::Vmi;

/// Attributes of a claimed device: its PCI address, and its mediated device's UUID.
const PCI: &str = "resource.kubernetes.io/pciBusID";
const MDEV: &str = "mdevUUID";
const VERSION: &str = "metadata.resource.k8s.io/v1alpha1";
/// Limit of the metadata in bytes.
const MAX_METADATA_BYTES: u64 = 4 << 20;

/// What a claim gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// PCI address of a device.
    Pci(String),
    /// UUID of a mediated device; its parent may be on the PCI bus as well.
    Mdev(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "apiVersion")]
    api_version: String,
    requests: Vec<Request>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Request {
    name: String,
    devices: Vec<Device>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Device {
    attributes: BTreeMap<String, Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute {
    string: Option<String>,
}

/// The device that the pod got for a request of a claim (`claimName`, `requestName`). The claim is
/// `resourceClaimName`, or was made from a template.
pub(super) fn find(
    root: &Root,
    vmi: &Vmi,
    device: &str,
    claim: &str,
    request: &str,
) -> Result<Claimed, PodError> {
    let refuse =
        |why: String| unusable!("device {device:?}: claim {claim:?}, request {request:?}: {why}");
    if claim.is_empty() || request.is_empty() {
        return Err(refuse(
            "claimName and requestName are both needed".to_owned(),
        ));
    }
    let reference = vmi
        .spec
        .resource_claims
        .iter()
        .find(|reference| reference.name == claim)
        .ok_or_else(|| refuse("spec.resourceClaims has no such claim".to_owned()))?;
    let (kind, name) = match reference
        .resource_claim_name
        .as_ref()
        .filter(|name| !name.is_empty())
    {
        Some(name) => ("resourceclaims", name),
        None => ("resourceclaimtemplates", &reference.name),
    };
    let place = format!(
        "{}/{kind}/{}/{}",
        pod_paths::CLAIMED_DEVICE_DIR,
        checked_name("claim", name)?,
        checked_name("request", request)?
    );
    let dir = Dir::of_pod(root, &place)?;
    let files: Vec<String> = dir
        .entries()?
        .into_iter()
        .filter(|name| name.ends_with("-metadata.json"))
        .collect();
    let [file] = files.as_slice() else {
        let count = files.len();
        return Err(refuse(format!(
            "{place} has {count} files named *-metadata.json; exactly one driver can serve a request"
        )));
    };
    let metadata = read(&dir.find_within(file)?)?;
    let Some(asked) = metadata.requests.iter().find(|asked| asked.name == request) else {
        let names = metadata
            .requests
            .iter()
            .map(|request| request.name.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        return Err(refuse(format!(
            "{place}/{file} does not list this request; it lists {names}"
        )));
    };
    let [found] = asked.devices.as_slice() else {
        return Err(refuse(format!(
            "the request has {} devices; exactly one is supported",
            asked.devices.len()
        )));
    };
    let attribute = |name: &str| {
        found
            .attributes
            .get(name)?
            .string
            .clone()
            .filter(|value| !value.is_empty())
    };
    attribute(MDEV)
        .map(Claimed::Mdev)
        .or_else(|| attribute(PCI).map(Claimed::Pci))
        .ok_or_else(|| {
            refuse(format!(
                "the device has neither the attribute {MDEV} nor {PCI}"
            ))
        })
}

/// The first document of a known version: a driver writes the same data once for each version.
fn read(file: &Found) -> Result<Metadata, PodError> {
    let bad = |reason: String| PodError::invalid(file.path(), reason);
    let text = file.content(MAX_METADATA_BYTES)?;
    let mut others = Vec::new();
    for document in serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>() {
        let document = document.map_err(|e| bad(format!("no device attributes: {e}")))?;
        match document
            .get("apiVersion")
            .and_then(|version| version.as_str())
        {
            Some(VERSION) => {
                return serde_json::from_value(document)
                    .map_err(|e| bad(format!("no device attributes: {e}")));
            }
            Some(other) => others.push(other.to_owned()),
            None => return Err(bad("no device attributes: apiVersion is missing".to_owned())),
        }
    }
    Err(bad(format!(
        "has no device attributes of version {VERSION} (but {:?}); update the driver or the launcher",
        others
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Claimed, String> {
        let dir = tempfile::tempdir().unwrap();
        let place = dir
            .path()
            .join(&pod_paths::CLAIMED_DEVICE_DIR[1..])
            .join("resourceclaimtemplates/gpus/one");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("driver-metadata.json"), text).unwrap();
        let vmi = serde_json::from_str(
            r#"{"spec":{"resourceClaims":[{"name":"gpus","resourceClaimTemplateName":"t"}]}}"#,
        )
        .unwrap();
        find(&Root::new(dir.path()), &vmi, "gpu", "gpus", "one").map_err(|e| os::logging::chain(&e))
    }

    fn document(version: &str, attributes: &str) -> String {
        format!(
            r#"{{"apiVersion":"{version}","requests":[{{"name":"one","devices":[{{"attributes":{{{attributes}}}}}]}}]}}"#
        )
    }

    #[test]
    fn a_mediated_device_wins_over_its_parent() {
        let pci = r#""resource.kubernetes.io/pciBusID":{"string":"0000:3b:00.0"}"#;
        assert_eq!(
            found(&document(VERSION, pci)),
            Ok(Claimed::Pci("0000:3b:00.0".into()))
        );
        let both = format!(r#"{pci},"mdevUUID":{{"string":"u-1"}}"#);
        assert_eq!(
            found(&document(VERSION, &both)),
            Ok(Claimed::Mdev("u-1".into()))
        );
    }

    #[test]
    fn newer_versions_are_passed_over() {
        let text = document("metadata.resource.k8s.io/v2", "")
            + &document(VERSION, r#""mdevUUID":{"string":"u-1"}"#);
        assert_eq!(found(&text), Ok(Claimed::Mdev("u-1".into())));
        assert!(
            found(&document("metadata.resource.k8s.io/v2", ""))
                .unwrap_err()
                .contains("update the driver")
        );
    }

    #[test]
    fn bad_attributes_are_refused() {
        assert!(found("{").unwrap_err().contains("no device attributes"));
        assert!(found("{}").unwrap_err().contains("apiVersion is missing"));
        assert!(
            found(&document(VERSION, ""))
                .unwrap_err()
                .contains("has neither the attribute mdevUUID nor")
        );
    }

    #[test]
    fn an_unknown_claim_is_refused() {
        let error = find(&Root::default(), &Vmi::default(), "gpu", "gpus", "one").unwrap_err();
        let error = os::logging::chain(&error);
        assert!(
            error.contains("spec.resourceClaims has no such claim"),
            "{error}"
        );
    }
}
