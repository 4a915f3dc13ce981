//! `plan` and `sync`: what a changed VMI changes on a running domain, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::target::{Target, TargetError, last_vmi, read_manifest, vm_name};
use crate::error::CtlError;
use crate::host::network::notes_of_links;
use crate::host::registry::{self, VmDir};
use crate::host::sidecars;
use crate::host::start_args::SuperviseArgs;
use crate::host::{config_data, data_volumes, images};
use crate::json::{list_at, push, text_at, text_or_dash};
use crate::manifest::config_data::Reference;
use crate::manifest::{DISKS, Manifest, ManifestError, in_manifest};
use crate::view::output::{Format, Line, answer, say};
use client::Client;
use terminal::human_size;
use terminal::progress::waiting;
use terminal::table;

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
        let manifest = given.as_ref().map(|(_, manifest)| manifest);
        let (dir, client) = target(args, manifest).connect().await?;
        let sent = last_vmi(&dir, &client).await;
        let (vmi, restart) = match given {
            None => (sent?.ok_or(TargetError::NeedsVmi)?, dir.load_restart()),
            Some((file, manifest)) => match sent.ok().flatten() {
                Some(sent) => {
                    let data = changed_data(&manifest, &dir)?;
                    let (vmi, restart) =
                        as_update(manifest, &sent, &dir).map_err(in_manifest(file))?;
                    (vmi, [restart, data].concat())
                }
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

/// The chosen VM, else the one of the manifest's name. If none has it, the only VM.
fn target(args: &PlanArgs, manifest: Option<&Manifest>) -> Target {
    let name = manifest.map(|manifest| text_at(manifest.value(), "/metadata/name"));
    let are_several = || registry::all().is_ok_and(|all| all.len() > 1);
    match name.filter(|name| registry::find(name).is_ok() || are_several()) {
        Some(name) if args.target.name.is_none() && args.target.root.is_none() => Target {
            name: Some(name.to_owned()),
            root: None,
        },
        _ => args.target.clone(),
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
        let interfaces = update.network_as_in(sent);
        for (names, why) in [(interfaces.lost, KEPT), (interfaces.new, " is new")] {
            let of_interface = |name| restart_of("domain.devices.interfaces", name, why);
            restart.extend(names.iter().map(|name| of_interface(name)));
        }
        notes_of_links(&update).for_each(say);
        for name in update.keep_drives(sent) {
            restart.push(restart_of("domain.devices.disks", &name, KEPT));
        }
        update.check_sources(sent)?;
        for name in update.keep_volumes(sent) {
            restart.push(restart_of("volumes", &name, KEPT));
        }
        for name in update.leave_out_new_volumes(sent) {
            restart.push(restart_of("volumes", &name, " is new"));
        }
        for name in update.keep_plugged_volumes(sent) {
            restart.push(restart_of("volumes", &name, KEPT_PLUGGED));
        }
        for name in update.keep_host_disks(sent) {
            say(format!(
                "the host disk {name} keeps its size: neither a sync nor a restart changes its file"
            ));
        }
        for name in update.keep_disks(sent) {
            restart.push(restart_of("domain.devices.disks", &name, KEPT_BUS));
        }
        let disks = list_at(update.value(), DISKS).to_vec();
        for name in update.leave_out_volumes(sent) {
            let disk = disks.iter().find(|disk| text_at(disk, "/name") == name);
            let options = disk.map(options_of).unwrap_or_default();
            say(format!(
                "the volume {name} is new and has no image here, so it is left out; launcherctl addvolume {name} --file FILE{options} plugs it in"
            ));
        }
    }
    Ok((update.into_value(), restart))
}

/// The ConfigMaps and Secrets whose data have changed, in a plan's format.
fn changed_data(manifest: &Manifest, dir: &VmDir) -> Result<Vec<Value>, CtlError> {
    // A pod's are the kubelet's.
    if !dir.is_of_run() {
        return Ok(Vec::new());
    }
    let in_plan = |it: &Reference<'_>| {
        let (kind, name) = (it.kind, it.name);
        let why = format!(": the {kind} {name} has changed; the guest keeps the data of its start");
        restart_of_field(&it.field, &why)
    };
    // A program of run --sidecar replaces a ConfigMap's script.
    let args = SuperviseArgs::load(dir).map(|args| args.start.sidecars);
    let sidecars = sidecars::programs(manifest.value(), &args.unwrap_or_default());
    let sidecars = sidecars.unwrap_or_default();
    let changed = config_data::changed(manifest, &sidecars, dir)?;
    let data = changed.iter().map(in_plan);
    Ok(data.chain(grown_disks(manifest, dir)).collect())
}

/// The copies of DataVolumes that the next run makes larger, in a plan's format.
fn grown_disks(manifest: &Manifest, dir: &VmDir) -> impl Iterator<Item = Value> {
    manifest
        .volumes()
        .enumerate()
        .filter_map(|(index, (name, volume))| {
            let wanted = data_volumes::size(data_volumes::find(manifest.others(), volume)?)?;
            let disk = images::destination(dir, index, name, volume)?;
            let is = disk.metadata().ok()?.len();
            let why = format!(
                ": its DataVolume grows from {} to {}",
                human_size(is),
                human_size(wanted)
            );
            (is < wanted).then(|| restart_of("volumes", name, &why))
        })
}

/// Why a device of the start does not change.
const KEPT: &str = ": the guest keeps the one of its start as long as it runs";

/// Why a volume does not get in.
const KEPT_PLUGGED: &str =
    ": the guest keeps what addvolume has attached by this name as long as it runs";

/// Why a disk does not move.
const KEPT_BUS: &str = ": the disk keeps its bus as long as the guest runs";

/// The options of `addvolume` for a disk like this.
fn options_of(disk: &Value) -> String {
    let bus = match text_at(disk, "/disk/bus") {
        "virtio" => " --bus virtio",
        _ => "",
    };
    match text_at(disk, "/serial") {
        "" => bus.to_owned(),
        serial => format!("{bus} --serial {serial}"),
    }
}

/// A device of this list below the spec, in a plan's format.
fn restart_of(list: &str, name: &str, why: &str) -> Value {
    restart_of_field(&format!("spec.{list}[{name}]"), why)
}

fn restart_of_field(field: &str, why: &str) -> Value {
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
    let steps = [list_at(&plan, "/steps"), list_at(&plan, "/kept")].concat();
    answer(format, &plan, || {
        let lines = text(&steps, list_at(&plan, "/restart"), format);
        let nothing = lines.is_empty().then(|| "nothing to do".into());
        lines.into_iter().chain(nothing)
    })
}

/// The steps, with devices that cannot be changed now, and the fields that need a restart.
fn text(steps: &[Value], restart: &[Value], format: Format) -> Vec<Line> {
    let cells = steps.iter().map(|step| {
        let name = step.get("interface").map_or("/volume", |_| "/interface");
        let cells = ["/verb", "/target", name, "/why"];
        cells.map(|cell| text_or_dash(step, cell)).join("\t")
    });
    // Each line says what it is, so they have no header.
    let lines = table(format.width(), "\t\t\t", cells).into_iter().skip(1);
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
    let update = Update::new(args).await?;
    let (client, vmi) = (&update.client, &update.vmi);
    let options = client.last_sync().await?.map(|sync| sync.options);
    // Only our launcher has a plan; while it starts a guest, there is nothing to compare with.
    let planned = client.plan(vmi).await.unwrap_or_default();
    let synced = client.sync(vmi, options.unwrap_or_default());
    waiting("the launcher to sync the VM", None, synced).await?;
    if update.dir.is_of_run() {
        update.dir.store_vmi(vmi)?;
        // For a later plan.
        update.dir.store_restart(&update.restart)?;
    }
    let after = client.plan(vmi).await.unwrap_or_default();
    let steps = list_at(&planned, "/steps");
    let restart = [list_at(&after, "/restart"), &update.restart].concat();
    let vm = vm_name(vmi);
    let json = json!({"success": true, "vm": vm, "steps": steps, "restart": restart});
    answer(format, &json, || {
        let changes = text(steps, &restart, format);
        [Line::from(format!("synced {vm}"))]
            .into_iter()
            .chain(changes)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::view::output::joined;
    use api::pod_paths::PodPaths;

    #[test]
    fn a_data_volume_that_grows_needs_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let disk = dir.path(&PodPaths::default().claim_image("data"));
        std::fs::create_dir_all(disk.parent().unwrap()).unwrap();
        std::fs::write(disk, [0; 1 << 20]).unwrap();
        let planned = |size: &str| {
            let manifest = format!(
                "
kind: VirtualMachineInstance
metadata: {{name: a}}
spec:
  domain: {{memory: {{guest: 64Mi}}}}
  volumes: [{{name: data, dataVolume: {{name: dv}}}}]
---
kind: DataVolume
metadata: {{name: dv}}
spec: {{source: {{blank: {{}}}}, storage: {{resources: {{requests: {{storage: {size}}}}}}}}}
"
            );
            let manifest = Manifest::parse(&manifest).unwrap();
            grown_disks(&manifest, &dir).collect::<Vec<_>>()
        };
        assert_eq!(planned("1Mi"), Vec::<Value>::new());
        let why = text_at(&planned("2Mi")[0], "/why").to_owned();
        let expected =
            "needs a restart: spec.volumes[data]: its DataVolume grows from 1 MiB to 2 MiB";
        assert_eq!(why, expected);
    }

    #[test]
    fn steps_and_restarts_are_listed() {
        let steps = [
            json!({"verb": "detach", "target": "sda", "volume": "data", "why": "not wanted any more"}),
        ];
        let restart = [json!({"why": "needs a restart: spec.domain.cpu.cores"})];
        let lines = joined(text(&steps, &restart, Format::Wide));
        let expected = "\
detach  sda  data  not wanted any more
needs a restart: spec.domain.cpu.cores";
        assert_eq!(lines, expected);
        assert!(text(&[], &[], Format::Wide).is_empty());
    }
}
