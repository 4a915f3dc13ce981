//! `plan` and `sync`: what a changed VMI changes on a running domain, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::inputs::read_manifest;
use super::target::{RunningVm, Target, vm_name};
use crate::error::CtlError;
use crate::host::registry;
use crate::json::{list_at, push, text_at};
use crate::manifest::in_manifest;
use crate::view::output::{Format, Line, answer, or_dash};
use terminal::table;

/// Why a device does not change.
const KEPT: &str =
    "the guest keeps its devices as long as it runs, but for addvolume and removevolume";

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
    vm: RunningVm,
    vmi: Value,
    /// Volumes and interfaces in which a file's VMI differs from the sent one, as only a restart of
    /// the guest applies them; in a plan's format.
    restart: Vec<Value>,
}

impl Update {
    /// Connects to the launcher, for the file's VMI, else the last sent one.
    async fn new(args: &PlanArgs) -> Result<Self, CtlError> {
        let given = match &args.vmi {
            Some(file) => Some((file, read_manifest(file)?)),
            None => None,
        };
        let named = given.as_ref().map(|(_, it)| it.text("/metadata/name"));
        let named = named.and_then(|name| registry::find(name).ok());
        // The chosen VM, else the one of the manifest's name. If none has it, the only VM.
        let dir = match named.filter(|_| args.target == Target::default()) {
            Some(dir) => dir,
            None => args.target.resolve()?,
        };
        let vm = RunningVm::connect(dir).await?;
        let (vmi, restart) = match (given, vm.last_vmi().await) {
            (None, sent) => (sent?, vm.dir.load_restart()),
            (Some((_, manifest)), Err(_)) => (manifest.into_value(), Vec::new()),
            (Some((file, manifest)), Ok(sent)) => {
                let update = manifest.into_update_of(&sent);
                let mut update = update.map_err(in_manifest(file))?;
                // In a pod virt-handler does it.
                let kept = match vm.dir.is_of_run() {
                    true => update.keep_devices(&sent),
                    false => Vec::new(),
                };
                let in_plan = |field: String| {
                    let why = format!("needs a restart: {field}: {KEPT}");
                    json!({"field": field, "needs": "restart", "why": why})
                };
                let restart = kept.into_iter().map(in_plan).collect();
                (update.into_value(), restart)
            }
        };
        Ok(Self { vm, vmi, restart })
    }
}

/// `plan`.
///
/// # Errors
/// If no launcher is found, or it refuses the VMI.
pub async fn plan(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let update = Update::new(args).await?;
    let mut plan = update.vm.client.plan(&update.vmi).await?;
    for field in update.restart {
        push(&mut plan, "/restart", field);
    }
    let steps = [list_at(&plan, "/steps"), list_at(&plan, "/kept")].concat();
    answer(format, &plan, || {
        let lines = text(&steps, list_at(&plan, "/restart"));
        let nothing = lines.is_empty().then(|| "nothing to do".into());
        lines.into_iter().chain(nothing)
    })
}

/// The steps, with devices that cannot be changed now, and the fields that need a restart.
fn text(steps: &[Value], restart: &[Value]) -> Vec<Line> {
    let cells = steps.iter().map(|step| {
        let name = step.get("interface").map_or("/volume", |_| "/interface");
        let cells = ["/verb", "/target", name, "/why"];
        cells.map(|cell| or_dash(text_at(step, cell))).join("\t")
    });
    // Each line says what it is, so they have no header.
    let lines = table("\t\t\t", cells).into_iter().skip(1);
    let mut lines: Vec<Line> = lines.collect();
    let restart = restart.iter().map(|field| text_at(field, "/why"));
    lines.extend(restart.map(|why| Line::Problem(why.to_owned())));
    lines
}

/// `sync`: sends the VMI again, or a changed one, with the last sync's options.
///
/// # Errors
/// There is no launcher, or it refuses the VMI.
pub async fn sync(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let Update { vm, vmi, restart } = &Update::new(args).await?;
    let (dir, client, options) = (&vm.dir, &vm.client, vm.options().await?);
    // Only our launcher has a plan; while it starts a guest, there is nothing to compare with.
    let planned = client.plan(vmi).await.unwrap_or_default();
    client.sync(vmi, options).await?;
    if dir.is_of_run() {
        dir.store_vmi(vmi)?;
        // For a later plan.
        dir.store_restart(restart)?;
    }
    let after = client.plan(vmi).await.unwrap_or_default();
    let steps = list_at(&planned, "/steps");
    let restart = [list_at(&after, "/restart"), restart].concat();
    let vm = vm_name(vmi);
    let json = json!({"success": true, "vm": vm, "steps": steps, "restart": restart});
    answer(format, &json, || {
        let changes = text(steps, &restart);
        [Line::from(format!("synced {vm}"))]
            .into_iter()
            .chain(changes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;

    #[test]
    fn steps_and_restarts_are_listed() {
        let steps = [
            json!({"verb": "detach", "target": "sda", "volume": "data", "why": "not wanted any more"}),
        ];
        let restart = [json!({"why": "needs a restart: spec.domain.cpu.cores"})];
        let lines = joined(text(&steps, &restart));
        let expected = "\
detach  sda  data  not wanted any more
needs a restart: spec.domain.cpu.cores";
        assert_eq!(lines, expected);
        assert!(text(&[], &[]).is_empty());
    }
}
