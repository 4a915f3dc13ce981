//! `info`, `ping`, `domain`, `qemu-version` and `metrics`: a launcher's answers about itself and
//! its domain.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::target::Target;
use crate::error::CtlError;
use crate::json::{list_at, text_at, text_or_dash};
use crate::reports::guest_state::{no_domain, status_text};
use crate::view::output::{Format, answer, answer_document};

/// `info`: the versions of the cmd service.
///
/// # Errors
/// The launcher does not answer.
pub async fn info(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let versions = target.connect().await?.versions().await?;
    answer(format, &json!({"supportedCmdVersions": versions}), || {
        [format!("cmd versions: {versions:?}")]
    })
}

/// `ping`: checks that the launcher and its libvirt answer.
///
/// # Errors
/// They do not.
pub async fn ping(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    target.connect().await?.ping().await?;
    answer(format, &json!({"success": true}), || ["ok".to_owned()])
}

/// `domain`: the domain as virt-handler sees it.
///
/// # Errors
/// The launcher does not answer.
pub async fn domain(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let domain = target.connect().await?.domain().await?.unwrap_or_default();
    answer(format, &domain, || summary(&domain))
}

/// `qemu-version`.
///
/// # Errors
/// The launcher does not answer.
pub async fn qemu_version(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let version = target.connect().await?.qemu_version().await?;
    answer(format, &json!({"version": version}), || [version.clone()])
}

/// `metrics`: OpenMetrics text; as JSON, an object with it.
///
/// # Errors
/// The launcher does not answer.
pub async fn metrics(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let metrics = target.connect().await?.metrics().await?;
    answer_document(format, "metrics", &metrics)
}

/// `dumpxml`: libvirt's XML of the running domain.
///
/// # Errors
/// If there is no domain, or the launcher does not have this call (KubeVirt's does not).
pub async fn dumpxml(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let xml = target.connect().await?.debug().await?.domain_xml;
    if xml.is_empty() {
        return Err(no_domain().into());
    }
    answer_document(format, "domainXml", &xml)
}

/// The most important parts of a domain, on a few lines.
fn summary(domain: &Value) -> Vec<String> {
    if domain.is_null() {
        return vec!["no domain".to_owned()];
    }
    let parts = ["/Name", "/UUID", "/OS/Type/Machine", "/Type"];
    let [name, uuid, machine, kind] =
        parts.map(|part| text_or_dash(domain, &format!("/Spec{part}")));
    let status = status_text(domain);
    let disks = list_at(domain, "/Spec/Devices/Disks").iter().map(|disk| {
        let [name, target] = ["/Alias/Name", "/Target/Device"].map(|part| text_at(disk, part));
        let [file, device] = ["/Source/File", "/Source/Dev"].map(|part| text_at(disk, part));
        format!("  disk {name}  {target}  {file}{device}")
    });
    let mut lines = vec![
        format!("{name}  {status}"),
        format!("  uuid {uuid}  machine {machine}  type {kind}"),
    ];
    lines.extend(disks);
    lines
}
