//! `stats`: the guest's resource usage, as the launcher's own document.

use std::process::ExitCode;

use serde_json::json;

use super::target::VmArgs;
use crate::error::CtlError;
use crate::view::output::{Format, answer_json};

/// `stats`.
///
/// # Errors
/// The launcher does not answer, or there is no running guest.
pub async fn stats(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, launcher) = args.target().connect().await?;
    answer_json(format, &json!(launcher.domain_stats().await?))
}
