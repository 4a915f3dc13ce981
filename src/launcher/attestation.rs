//! Attestation of guests with AMD's encrypted memory (SEV): the node proves to the guest's
//! owner what was started; the owner then sends a secret, before the guest runs. KubeVirt attests
//! only a VMI with `startStrategy: Paused`.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::admit;
use super::error::LauncherError;
use super::libvirt_domain::{LibvirtDomain, read_spec};
use super::vm::Request;
use domain::DomainSpec;
use libvirt::{ChangeableDomain, ParamValue, XmlKind};

/// Larger than any firmware.
const MAX_FIRMWARE_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SevError {
    /// The request has no decodable secret.
    #[error("No valid secret options present in command server request")]
    InvalidOptions,
    /// A part of the secret is missing.
    #[error("{0} is required")]
    Missing(&'static str),
    /// The domain has no firmware; the measurement needs its checksum.
    #[error("the domain has no firmware to measure; SEV needs UEFI")]
    NoFirmware,
    /// libvirt's error, such as for a node or a guest without SEV.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The firmware cannot be read.
    #[error("cannot read the domain's firmware {path}")]
    Firmware {
        path: String,
        source: std::io::Error,
    },
}

/// The node's keys.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlatformInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    pdh: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cert_chain: String,
}

/// The processor firmware's measurement of the guest.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measurement {
    #[serde(skip_serializing_if = "String::is_empty")]
    measurement: String,
    #[serde(rename = "apiMajor", skip_serializing_if = "is_zero")]
    api_major: u64,
    #[serde(rename = "apiMinor", skip_serializing_if = "is_zero")]
    api_minor: u64,
    #[serde(rename = "buildID", skip_serializing_if = "is_zero")]
    build_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    policy: u64,
    #[serde(rename = "loaderSHA", skip_serializing_if = "String::is_empty")]
    loader_sha: String,
}

/// The guest owner's secret, in Base64, encrypted for this guest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LaunchSecret {
    header: String,
    secret: String,
}

impl LaunchSecret {
    /// Reads the options of `InjectLaunchSecret`.
    ///
    /// # Errors
    /// They are not JSON, or the header or the secret is missing.
    pub fn from_json(options: &[u8]) -> Result<Self, SevError> {
        let secret: Self = api::json::from_slice(options).map_err(|_| SevError::InvalidOptions)?;
        if secret.header.is_empty() {
            return Err(SevError::Missing("Header"));
        }
        if secret.secret.is_empty() {
            return Err(SevError::Missing("Secret"));
        }
        Ok(secret)
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "as serde passes the field"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Answers the guest owner's questions that precede a secret.
pub struct Attestation {
    pub(super) libvirt: Arc<LibvirtDomain>,
}

impl Attestation {
    /// `GetSEVInfo`: the node's keys, as JSON.
    pub async fn sev_info(&self) -> Result<String, SevError> {
        let read = |connection: &libvirt::Connection, _: &str| Ok(connection.sev_info()?);
        let params = self
            .libvirt
            .read("reading the node's SEV keys", read)
            .await?;
        Ok(json(&platform_info(&params)))
    }

    /// `GetLaunchMeasurement` (`virDomainGetLaunchSecurityInfo`): the guest's measurement, as JSON.
    ///
    /// # Errors
    /// libvirt's, such as for a guest without SEV, or unreadable firmware.
    pub async fn launch_measurement(&self) -> Result<String, SevError> {
        let measure = |connection: &libvirt::Connection, name: &str| {
            let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
            let params = domain.launch_security_info()?;
            let live = read_spec(&domain, XmlKind::Live)?;
            Ok(firmware_checksum(&live).map(|sha| measurement(&params, sha)))
        };
        let what = "reading the guest's launch measurement";
        Ok(json(&self.libvirt.read(what, measure).await??))
    }

    /// `InjectLaunchSecret` (`virDomainSetLaunchSecurityState`): gives the guest its launch secret
    /// before it first runs. It is admitted always: libvirt refuses it unless the guest is paused.
    ///
    /// # Errors
    /// libvirt's.
    pub async fn inject_launch_secret(&self, secret: LaunchSecret) -> Result<(), SevError> {
        let what = "injecting the launch secret";
        let inject = move |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            Ok(domain.set_launch_secret(&secret.header, &secret.secret)?)
        };
        let request = Request::InjectSecret;
        Ok(admit::change(&self.libvirt, request, what, inject).await?)
    }
}

fn json(value: &impl Serialize) -> String {
    // Fails only for maps with keys that are not text and for failing writers; there are neither.
    serde_json::to_string(value).unwrap_or_default()
}

fn text(params: &[(String, ParamValue)], name: &str) -> String {
    match value(params, name) {
        Some(ParamValue::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn number(params: &[(String, ParamValue)], name: &str) -> u64 {
    match value(params, name) {
        Some(ParamValue::Unsigned(number)) => *number,
        _ => 0,
    }
}

fn value<'a>(params: &'a [(String, ParamValue)], name: &str) -> Option<&'a ParamValue> {
    let mut params = params.iter();
    params.find(|(it, _)| it == name).map(|(_, value)| value)
}

fn platform_info(params: &[(String, ParamValue)]) -> PlatformInfo {
    PlatformInfo {
        pdh: text(params, "pdh"),
        cert_chain: text(params, "cert-chain"),
    }
}

fn measurement(params: &[(String, ParamValue)], loader_sha: String) -> Measurement {
    Measurement {
        measurement: text(params, "sev-measurement"),
        api_major: number(params, "sev-api-major"),
        api_minor: number(params, "sev-api-minor"),
        build_id: number(params, "sev-build-id"),
        policy: number(params, "sev-policy"),
        loader_sha,
    }
}

/// The checksum of the domain's firmware.
fn firmware_checksum(live: &DomainSpec) -> Result<String, SevError> {
    let loader = live.os.boot_loader.as_ref();
    let path = loader
        .map(|loader| loader.path.as_str())
        .filter(|path| !path.is_empty());
    checksum(path.ok_or(SevError::NoFirmware)?)
}

/// SHA-256, in hexadecimal digits.
fn checksum(path: &str) -> Result<String, SevError> {
    use std::fmt::Write as _;
    use std::io::Read as _;

    let failed = |source| SevError::Firmware {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(Path::new(path)).map_err(failed)?;
    let mut content = Vec::new();
    file.take(MAX_FIRMWARE_BYTES)
        .read_to_end(&mut content)
        .map_err(failed)?;
    let mut text = String::new();
    for byte in Sha256::digest(&content) {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(values: &[(&str, ParamValue)]) -> Vec<(String, ParamValue)> {
        let owned = |(name, value): &(&str, ParamValue)| ((*name).to_owned(), value.clone());
        values.iter().map(owned).collect()
    }

    fn text(value: &str) -> ParamValue {
        ParamValue::Text(value.to_owned())
    }

    #[test]
    fn the_nodes_keys_are_kubevirts_json() {
        let known = params(&[
            ("cbitpos", ParamValue::Unsigned(51)),
            ("pdh", text("AAAA")),
            ("cert-chain", text("BBBB")),
        ]);
        let info = json(&platform_info(&known));
        assert_eq!(info, r#"{"pdh":"AAAA","certChain":"BBBB"}"#);
        assert_eq!(json(&platform_info(&[])), "{}");
    }

    #[test]
    fn a_measurement_is_kubevirts_json_with_the_firmwares_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("OVMF_CODE.cc.fd");
        std::fs::write(&path, "abc").unwrap();
        let sha = checksum(path.to_str().unwrap()).unwrap();
        assert_eq!(
            sha,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let known = params(&[
            ("sev-measurement", text("TUVBUw==")),
            ("sev-api-major", ParamValue::Unsigned(1)),
            ("sev-api-minor", ParamValue::Unsigned(51)),
            ("sev-build-id", ParamValue::Unsigned(3)),
            ("sev-policy", ParamValue::Unsigned(0)),
        ]);
        let found: serde_json::Value =
            serde_json::from_str(&json(&measurement(&known, "cafe".into()))).unwrap();
        let wanted = serde_json::json!({
            "measurement": "TUVBUw==", "apiMajor": 1, "apiMinor": 51, "buildID": 3, "loaderSHA": "cafe",
        });
        assert_eq!(found, wanted);
        let missing = checksum("/nonexistent/OVMF").unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/OVMF"));
    }

    #[test]
    fn a_secret_has_both_parts() {
        let refused = |options: &str| {
            LaunchSecret::from_json(options.as_bytes())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused("no JSON"),
            "No valid secret options present in command server request"
        );
        assert_eq!(refused(r#"{"secret": "a"}"#), "Header is required");
        assert_eq!(refused(r#"{"header": "a"}"#), "Secret is required");
        let whole = LaunchSecret::from_json(br#"{"header": "a", "secret": "b"}"#).unwrap();
        assert_eq!((whole.header.as_str(), whole.secret.as_str()), ("a", "b"));
    }
}
