//! `hooks try`: calls one sidecar with a VMI, without a launcher.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{Options, subject, until_signal};
use crate::error::{CtlError, text_error};
use crate::view::output::{Format, below_first, print};
use hooks::dry_run::{DryRun, dry_run};

/// virt-handler's limit of a whole sync.
const HOOK_TIMEOUT: Duration = Duration::from_secs(20);

/// Arguments of `hooks try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// VMI or VM manifest that the sidecar gets, YAML or JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    vmi: PathBuf,
    /// The sidecar, as hooks check takes it: a script (for onDefineDomain, unless it is named
    /// preCloudInitIso), a directory with either, or "./watchdog {}", which serves gRPC itself on a
    /// socket in the directory {}
    #[arg(long, value_name = "PROGRAM")]
    sidecar: String,
    #[command(flatten)]
    options: Options,
}

/// `hooks try`: exit status 1 for a sidecar that is refused at a point or serves none, is not
/// idempotent, lacks a Secret or sets what libvirt or KubeVirt ignores.
///
/// # Errors
/// The VMI is unreadable, or the sidecar does not start.
pub async fn run(args: &TryArgs, format: Format) -> Result<ExitCode, CtlError> {
    let program = std::slice::from_ref(&args.sidecar);
    let (program, subject, _dirs) = subject(Some(&args.vmi), program, &args.options)?;
    let tried = until_signal(dry_run(program, subject, HOOK_TIMEOUT)).await?;
    let tried =
        tried.map_err(|error| text_error!("the sidecar does not start").caused_by(error))?;
    print(format, &json!(tried), || lines(&tried));
    Ok(ExitCode::from(u8::from(!tried.passed())))
}

fn lines(tried: &DryRun) -> Vec<String> {
    let mut lines = vec![tried.sidecar.clone()];
    if tried.points.is_empty() {
        lines.push("  it serves no hook point that a launcher calls for this VMI".to_owned());
    }
    for run in &tried.points {
        let point = run.point;
        if let Some(why) = &run.refused {
            let text = format!("  {point} is refused: {why}");
            lines.extend(below_first(text.lines()));
            continue;
        }
        let nothing = if run.changes.is_empty() {
            " nothing"
        } else {
            ""
        };
        lines.push(format!("  {point} changes{nothing}"));
        lines.extend(run.changes.iter().map(|change| format!("    {change}")));
        lines.extend(run.ignored.iter().map(|ignored| format!("  {ignored}")));
        if !run.again.is_empty() {
            lines.push(format!("  {point} is not idempotent; given its own result"));
            let again = run.again.iter().map(|change| format!("    {change}"));
            lines.extend(again.flat_map(|it| below_first(it.lines())));
        }
    }
    lines
}
