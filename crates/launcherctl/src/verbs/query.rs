//! `ping`, `domain`, `dumpxml` and `metrics`: a launcher's answers about itself and its domain.

use std::process::ExitCode;

use serde_json::json;

use super::target::Target;
use crate::error::{CtlError, fail};
use crate::view::output::{Format, answer, answer_document, answer_json};
use client::running::no_domain;

/// `ping`: checks that the launcher and its libvirt answer.
///
/// # Errors
/// They do not.
pub async fn ping(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    client.ping().await?;
    answer(format, &json!({"success": true}), || ["ok".to_owned()])
}

/// `domain`: the JSON of the domain as virt-handler sees it, or null.
///
/// # Errors
/// The launcher does not answer.
pub async fn domain(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    answer_json(format, &json!(client.domain().await?))
}

/// `metrics`: OpenMetrics text; as JSON, an object that contains it.
///
/// # Errors
/// The launcher does not answer.
pub async fn metrics(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    let metrics = client.metrics().await?;
    answer_document(format, &json!({"openMetricsText": metrics}), &metrics)
}

/// `dumpxml`: libvirt's XML of the running domain.
///
/// # Errors
/// If there is no domain, or the launcher does not have this call (KubeVirt's does not).
pub async fn dumpxml(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = target.connect().await?;
    let answer = client.debug().await?;
    let xml = answer.domain_xml;
    if let Some(why) = answer.problems.first().filter(|_| xml.is_empty()) {
        fail!("libvirt does not answer: {why}; launcherctl status says more");
    }
    if xml.is_empty() {
        return Err(no_domain().into());
    }
    answer_document(format, &json!({"domainXml": xml}), &xml)
}
