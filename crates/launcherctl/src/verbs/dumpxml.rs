//! `dumpxml`: libvirt's XML of the running domain.

use std::process::ExitCode;

use serde_json::json;

use super::vm_args::VmArgs;
use crate::error::CtlError;
use crate::reports::guest_state::GuestError;
use crate::view::output::{Format, print, print_document};

/// `dumpxml`.
///
/// # Errors
/// If the launcher does not answer, or has no domain.
pub async fn dumpxml(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let xml = args.target().connect().await?.debug().await?.domain_xml;
    if xml.is_empty() {
        return Err(GuestError::NoDomain.into());
    }
    match format {
        Format::Text => print_document(&xml)?,
        Format::Json => print(format, &json!({"domainXml": xml}), String::new),
    }
    Ok(ExitCode::SUCCESS)
}
