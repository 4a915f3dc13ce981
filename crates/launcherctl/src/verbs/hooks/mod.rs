//! `hooks`: a running launcher's sidecars and their last calls; `hooks try`: calls one sidecar with
//! a VMI, without a launcher; `hooks check`: checks that a launcher can rely on a program as a
//! sidecar.

mod check;
mod trial;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::target::Target;
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::{FileError, InFile};
use crate::view::output::{Format, answer};
use api::pod_paths::HOOKS_REPORT;
use client::refusal::NETWORK_SIDECAR;
use hooks::{HookPointReport, Report};
use os::signals::EndSignals;

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
    Try(trial::TryArgs),
    /// Check whether a sidecar program does what a launcher expects: answers, bad input, size,
    /// time, its end
    Check(check::CheckArgs),
}

/// `hooks`, `hooks try` and `hooks check`.
///
/// # Errors
/// There is no launcher with sidecars, or the sidecar fails.
pub async fn hooks(args: &HooksArgs, format: Format) -> Result<ExitCode, CtlError> {
    match &args.action {
        None => list(&args.target, format).await,
        Some(Action::Try(args)) => trial::run(args, format).await,
        Some(Action::Check(args)) => check::run(args, format).await,
    }
}

async fn list(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    let launcher = target.resolve()?;
    // A report left by an ended launcher is out of date.
    launcher.connect().await?;
    let dir = launcher.into_dir("hooks")?;
    let (file, is_of_run) = (dir.path(HOOKS_REPORT), dir.is_of_run());
    let report: Report = match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| InFile::new(&file, error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Report::default(),
        Err(error) => return Err(FileError::on("read", file)(error).into()),
    };
    answer(format, &json!(report), || table(&report, is_of_run))
}

/// Stops at Ctrl-C and other signals, so that the sidecar and its files do not outlive this
/// program.
async fn until_signal<T>(work: impl Future<Output = T>) -> Result<T, CtlError> {
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    tokio::select! {
        done = work => Ok(done),
        _ = signals.next() => fail!("cancelled; the sidecar has been killed"),
    }
}

/// `is_of_run`: includes the sidecar by which `run` adds its network interfaces.
fn table(report: &Report, is_of_run: bool) -> Vec<String> {
    if report.sidecars.is_empty() {
        return vec!["no sidecars".into()];
    }
    let mut lines = Vec::new();
    for sidecar in &report.sidecars {
        let own = if is_of_run && sidecar.name == NETWORK_SIDECAR {
            "  (launcherctl's own, for the VM's network)"
        } else {
            ""
        };
        lines.push(format!(
            "{}  {}  {}{own}",
            sidecar.name, sidecar.version, sidecar.socket
        ));
        for point in &sidecar.points {
            lines.push(format!(
                "  {}. at {}, priority {}: {}",
                point.order,
                point.point,
                point.priority,
                last_call(point)
            ));
            for change in point.last.iter().flat_map(|run| &run.changes.list) {
                lines.push(format!("     {change}"));
            }
        }
    }
    lines
}

fn last_call(point: &HookPointReport) -> String {
    let Some(run) = &point.last else {
        return "not called yet".into();
    };
    let outcome = run.error.clone().unwrap_or_else(|| run.changes.count());
    format!(
        "called {}×, last in {:.1} ms: {outcome}",
        point.calls,
        run.microseconds as f64 / 1000.0
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_sidecar_of_run_itself_is_marked() {
        let sidecar = |name: &str| json!({"name": name, "socket": "a.sock", "version": "v1alpha3", "points": []});
        let report = json!({"sidecars": [sidecar("watchdog"), sidecar(NETWORK_SIDECAR)]});
        let report: Report = serde_json::from_value(report).unwrap();
        let lines = table(&report, true);
        assert_eq!(lines[0], "watchdog  v1alpha3  a.sock");
        assert!(lines[1].contains("launcherctl's own"), "{}", lines[1]);
        // In a pod it would be somebody else's.
        assert!(
            !table(&report, false)
                .join("\n")
                .contains("launcherctl's own")
        );
    }
}
