//! `hooks`: the sidecars of a running launcher and what each did last; `hooks try`: one sidecar
//! against a VMI, without a launcher.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use prost::bytes::Bytes;
use serde_json::json;

use super::error::CtlError;
use super::files::FileError;
use super::inputs::Inputs;
use super::output::{Format, print};
use super::target::Target;
use api::pod_paths::HOOKS_REPORT;
use hooks::dry_run::{DryRun, dry_run};
use hooks::{Change, HookPointReport, Report};

/// virt-handler gives a whole sync this long.
const HOOK_TIMEOUT: Duration = Duration::from_secs(20);

/// Arguments of `hooks`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HooksArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a sidecar against a VMI, without a launcher, and print what it changes
    Try(TryArgs),
}

/// Arguments of `hooks try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    #[command(flatten)]
    inputs: Inputs,
    /// The sidecar's socket
    #[arg(long, value_name = "SOCKET")]
    sidecar: PathBuf,
}

/// `hooks` and `hooks try`.
///
/// # Errors
/// If there is no launcher with sidecars, or the sidecar fails.
pub async fn hooks(args: &HooksArgs, format: Format) -> Result<ExitCode, CtlError> {
    match &args.action {
        None => list(&args.target, format),
        Some(Action::Try(args)) => try_one(args, format).await,
    }
}

fn list(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let file = target.resolve()?.into_dir("hooks")?.path(HOOKS_REPORT);
    let report: Report = match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| CtlError::Json {
            file: file.display().to_string(),
            source,
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Report::default(),
        Err(error) => return Err(FileError::on("read", file)(error).into()),
    };
    print(format, &json!(report), || table(&report));
    Ok(ExitCode::SUCCESS)
}

async fn try_one(args: &TryArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (value, vmi, context) = args.inputs.read()?;
    let xml = convert::domain(&vmi, &context)?.to_xml();
    let tried = dry_run(
        &args.sidecar,
        &Bytes::from(value.to_string()),
        &xml,
        os::time::deadline(HOOK_TIMEOUT),
    )
    .await
    .map_err(|error| CtlError::Hook(Box::new(error)))?;
    print(
        format,
        &json!({"sidecar": tried.sidecar, "points": tried.points, "changes": tried.changes, "again": tried.second_changes, "xml": tried.xml}),
        || summary(&tried),
    );
    Ok(ExitCode::SUCCESS)
}

fn table(report: &Report) -> String {
    if report.sidecars.is_empty() {
        return "no sidecars".into();
    }
    let mut lines = Vec::new();
    for sidecar in &report.sidecars {
        lines.push(format!(
            "{}  {}  {}",
            sidecar.name,
            serde_json::json!(sidecar.version)
                .as_str()
                .unwrap_or_default(),
            sidecar.socket
        ));
        for point in &sidecar.points {
            lines.push(format!(
                "  {}. at {}, priority {}: {}",
                point.order,
                json!(point.point).as_str().unwrap_or_default(),
                point.priority,
                last_call(point)
            ));
            lines.extend(
                point
                    .last
                    .iter()
                    .flat_map(|run| &run.changes)
                    .map(|change| format!("     {change}")),
            );
        }
    }
    lines.join("\n")
}

fn last_call(point: &HookPointReport) -> String {
    let Some(run) = &point.last else {
        return "not called yet".into();
    };
    let outcome = run
        .error
        .clone()
        .unwrap_or_else(|| format!("{} changes", run.changed));
    format!(
        "called {}×, last in {:.1} ms: {outcome}",
        point.calls,
        run.microseconds as f64 / 1000.0
    )
}

fn summary(tried: &DryRun) -> String {
    let list = |changes: &[Change]| {
        changes
            .iter()
            .map(|change| format!("  {change}\n"))
            .collect::<String>()
    };
    let mut text = format!("{}\n", tried.sidecar);
    text += if tried.changes.is_empty() {
        "  changes nothing\n"
    } else {
        ""
    };
    text += &list(&tried.changes);
    if !tried.second_changes.is_empty() {
        text += "it is not idempotent; given its own result it changes\n";
        text += &list(&tried.second_changes);
    }
    text.trim_end().to_owned()
}
