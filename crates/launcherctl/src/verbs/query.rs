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
        format!("cmd versions: {versions:?}")
    })
}

/// `ping`: checks that the launcher and its libvirt answer.
///
/// # Errors
/// They do not.
pub async fn ping(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    target.connect().await?.ping().await?;
    answer(format, &json!({"success": true}), || "ok".to_owned())
}

/// `domain`: the domain as virt-handler sees it.
///
/// # Errors
/// The launcher does not answer.
pub async fn domain(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let domain = target.connect().await?.domain().await?;
    answer(format, domain.as_ref().unwrap_or(&Value::Null), || {
        domain
            .as_ref()
            .map_or_else(|| vec!["no domain".into()], summary)
    })
}

/// `qemu-version`.
///
/// # Errors
/// The launcher does not answer.
pub async fn qemu_version(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let version = target.connect().await?.qemu_version().await?;
    answer(format, &json!({"version": version}), || version.clone())
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
    let part = |pointer| text_or_dash(domain, pointer);
    let mut lines = vec![
        format!("{}  {}", part("/Spec/Name"), status_text(domain)),
        format!(
            "  uuid {}  machine {}  type {}",
            part("/Spec/UUID"),
            part("/Spec/OS/Type/Machine"),
            part("/Spec/Type")
        ),
    ];
    let disks = list_at(domain, "/Spec/Devices/Disks");
    lines.extend(disks.iter().map(|disk| {
        format!(
            "  disk {}  {}  {}{}",
            text_at(disk, "/Alias/Name"),
            text_at(disk, "/Target/Device"),
            text_at(disk, "/Source/File"),
            text_at(disk, "/Source/Dev")
        )
    }));
    lines
}
