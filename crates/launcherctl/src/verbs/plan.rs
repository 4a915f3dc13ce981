//! `plan` and `sync`: what a changed VMI changes on a running domain, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, TargetError, last_vmi, read_manifest, vm_name};
use crate::error::CtlError;
use crate::host::network::notes_of_links;
use crate::host::registry::VmDir;
use crate::json::{list_at, push, text_at, text_or_dash};
use crate::manifest::{Manifest, ManifestError, in_manifest};
use crate::view::output::{Format, answer, say, with_progress};
use client::Client;

/// Arguments of `plan` and `sync`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// VMI or VM manifest, YAML or JSON, in place of the VMI that was sent last
    vmi: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// A VMI for a launcher.
struct Update {
    dir: VmDir,
    client: Client,
    vmi: Value,
    /// Volumes in which a file's VMI differs from the sent one, as only a restart of the guest
    /// applies them; in a plan's format.
    restart: Vec<Value>,
}

impl Update {
    /// Connects to the launcher, for the file's VMI, else the last sent one.
    async fn new(args: &PlanArgs) -> Result<Self, CtlError> {
        let given = match &args.vmi {
            Some(file) => Some((file, read_manifest(file)?)),
            None => None,
        };
        let (dir, client) = args.target.connect().await?;
        let sent = last_vmi(&dir, &client).await;
        let (vmi, restart) = match given {
            None => (sent?.ok_or(TargetError::NeedsVmi)?, dir.load_restart()),
            Some((file, manifest)) => match sent.ok().flatten() {
                Some(sent) => as_update(manifest, &sent, &dir).map_err(in_manifest(file))?,
                None => (manifest.into_value(), Vec::new()),
            },
        };
        Ok(Self {
            dir,
            client,
            vmi,
            restart,
        })
    }
}

/// A manifest's VMI as a later version of the sent one, and [`Update::restart`].
fn as_update(
    manifest: Manifest,
    sent: &Value,
    dir: &VmDir,
) -> Result<(Value, Vec<Value>), ManifestError> {
    let mut update = manifest.into_update_of(sent)?;
    let mut restart = Vec::new();
    // In a pod virt-handler does both.
    if dir.is_of_run() {
        update.network_as_in(sent);
        notes_of_links(&update).for_each(|note| say(&note));
        for name in update.keep_volumes(sent) {
            let why = ": the guest keeps the one of its start as long as it runs";
            restart.push(restart_of_volume(&name, why));
        }
        for name in update.leave_out_new_volumes(sent) {
            restart.push(restart_of_volume(&name, " is new"));
        }
        for name in update.leave_out_volumes(sent) {
            say(&format!(
                "the volume {name} is new and has no image here, so it is left out; launcherctl addvolume {name} --file FILE plugs it in"
            ));
        }
    }
    Ok((update.into_value(), restart))
}

/// In a plan's format.
fn restart_of_volume(name: &str, why: &str) -> Value {
    let field = format!("spec.volumes[{name}]");
    let why = format!("needs a restart: {field}{why}");
    json!({"field": field, "needs": "restart", "why": why})
}

/// `plan`.
///
/// # Errors
/// If no launcher is found, or it refuses the VMI.
pub async fn plan(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let update = Update::new(args).await?;
    let mut plan = update.client.plan(&update.vmi).await?;
    for field in update.restart {
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

/// `sync`: sends the VMI again, or a changed one, with the last sync's options.
///
/// # Errors
/// There is no launcher, or it refuses the VMI.
pub async fn sync(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let update = Update::new(args).await?;
    let (client, vmi) = (&update.client, &update.vmi);
    let options = client.last_sync().await?.map(|sync| sync.options);
    // Only our launcher has a plan; while it starts a guest, there is nothing to compare with.
    let planned = client.plan(vmi).await.unwrap_or_default();
    let synced = client.sync(vmi, options.unwrap_or_default());
    with_progress("the launcher to sync the VM", synced).await?;
    if update.dir.is_of_run() {
        update.dir.store_vmi(vmi)?;
        // For a later plan.
        update.dir.store_restart(&update.restart)?;
    }
    let after = client.plan(vmi).await.unwrap_or_default();
    let steps = list_at(&planned, "/steps");
    let restart = [&update.restart, list_at(&after, "/restart")].concat();
    let vm = vm_name(vmi);
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
