//! `plan`: what a sync would change on a running domain, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::target::{Target, VmiTarget};
use crate::error::CtlError;
use crate::json::{list_at, push, text_at, text_or_dash};
use crate::view::output::{Format, answer};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// VMI or VM manifest to plan for, YAML or JSON, in place of the one that was sent last
    vmi: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// `plan`.
///
/// # Errors
/// If no launcher is found, or it refuses the VMI.
pub async fn plan(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let target = VmiTarget {
        target: args.target.clone(),
        vmi: args.vmi.clone(),
    };
    let (launcher, client, vmi) = target.connect().await?;
    let mut plan = client.plan(&vmi).await?;
    for field in launcher.restart {
        push(&mut plan, "/restart", field);
    }
    answer(format, &plan, || match table(&plan) {
        lines if lines.is_empty() => vec!["nothing to do".to_owned()],
        lines => lines,
    })
}

/// A step, or a kept device: the action, the device, and the reason.
pub fn step_line(step: &Value) -> String {
    let name = match step.get("interface") {
        Some(_) => "/interface",
        None => "/volume",
    };
    let parts = ["/verb", "/target", name, "/why"];
    let [verb, target, name, why] = parts.map(|part| text_or_dash(step, part));
    format!("{verb:<7} {target:<6} {name:<20} {why}")
}

/// A line for each step, each device that cannot be changed now, and each field that needs a
/// restart.
fn table(plan: &Value) -> Vec<String> {
    let steps = ["/steps", "/kept"]
        .into_iter()
        .flat_map(|list| list_at(plan, list));
    let restart = list_at(plan, "/restart").iter();
    let restart = restart.map(|field| text_at(field, "/why").to_owned());
    steps.map(step_line).chain(restart).collect()
}
