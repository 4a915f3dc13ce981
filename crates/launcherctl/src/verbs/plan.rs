//! `plan` and `sync`: what a changed VMI changes on a running domain, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, VmiTarget, vm_name};
use crate::error::CtlError;
use crate::json::{list_at, push, text_at, text_or_dash};
use crate::view::output::{Format, answer, with_progress};

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
fn step_line(step: &Value) -> String {
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

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// VMI or VM manifest to send, YAML or JSON; without it, the VMI that was sent last
    #[arg(id = "manifest", value_name = "VMI", conflicts_with = "vmi")]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    target: VmiTarget,
}

/// `sync`: sends the VMI again, or a changed one, with the last sync's options.
///
/// # Errors
/// There is no launcher, or it refuses the VMI.
pub async fn sync(args: &SyncArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut target = args.target.clone();
    target.vmi = args.manifest.clone().or(target.vmi);
    let (launcher, client, vmi) = target.connect().await?;
    let options = client.last_sync().await?.map(|sync| sync.options);
    // Only our launcher has a plan; while it starts a guest, there is nothing to compare with.
    let planned = client.plan(&vmi).await.unwrap_or_default();
    let synced = client.sync(&vmi, options.unwrap_or_default());
    with_progress("the launcher to sync the VM", synced).await?;
    launcher.store(&vmi)?;
    let after = client.plan(&vmi).await.unwrap_or_default();
    let steps = list_at(&planned, "/steps");
    let restart = [&launcher.restart, list_at(&after, "/restart")].concat();
    let vm = vm_name(&vmi);
    let json = json!({"success": true, "vm": vm, "steps": steps, "restart": restart});
    answer(format, &json, || synced_lines(&vm, steps, &restart))
}

/// What a sync changed on the running guest, and what it could not change.
fn synced_lines(vm: &str, steps: &[Value], restart: &[Value]) -> Vec<String> {
    let mut lines = vec![format!("synced {vm}")];
    lines.extend(steps.iter().map(|step| format!("  {}", step_line(step))));
    let reasons = restart.iter().map(|field| text_at(field, "/why"));
    lines.extend(reasons.map(str::to_owned));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_says_what_it_changed() {
        let steps = [
            json!({"verb": "detach", "target": "sda", "volume": "data", "why": "not wanted any more"}),
        ];
        let restart = [json!({"why": "needs a restart: spec.domain.cpu.cores"})];
        let lines = synced_lines("default/web", &steps, &restart);
        let lines: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["synced", "default/web"]);
        assert_eq!(lines[1][..3], ["detach", "sda", "data"]);
        assert_eq!(lines[2][..3], ["needs", "a", "restart:"]);
        assert_eq!(
            synced_lines("default/web", &[], &[]),
            ["synced default/web"]
        );
    }
}
