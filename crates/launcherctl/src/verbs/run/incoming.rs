//! A VM of `run` that arrives from another launcher on this machine: starts a second launcher for
//! it, with its own supervisor, as `run` does.
//!
//! ```text
//!  migrate:     link images ─► start the supervisor ─► ready ─► migrate ─► console (--detach: leave)
//!  supervisor:                  start launcher ─► ready ─► wait for the guest ─► as for any VM of run
//! ```
//!
//! The second launcher runs libvirt with a daemon: the driver in the launcher's own process can
//! send a VM, but not receive one.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;
use tokio::time::timeout;

use super::attach::{Attachment, SupervisorError};
use crate::error::{CtlError, fail};
use crate::files::{FileError, absolute};
use crate::host::control::{ControlClient, Phase, Request, Update};
use crate::host::orphan_qemu::OrphanQemu;
use crate::host::registry::VmDir;
use crate::host::start_args::{StartArgs, SuperviseArgs};
use crate::host::{config_data, images, last_images, remains, vm_dir};
use crate::manifest::{Manifest, in_manifest};
use crate::verbs::migrate::error::{CANCELLED, NotArrived};
use crate::verbs::screen::Screen;
use crate::view::output::Format;
use api::pod_paths::{PodPaths, cbt_dir};
use os::signals::EndSignals;

/// The log of a target that got no VM, in the source's directory, where `debug` finds it.
const TARGET_LOG: &str = "/migration-target.log";
/// Limit for the supervisor to end a launcher that gets no VM.
const ABORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The arriving VM, and how to start its launcher.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The directory of its current launcher.
    pub source: &'a VmDir,
    pub vmi: &'a Value,
    /// Whether the guest's processor is emulated.
    pub emulate: bool,
    /// The launcher's program, if not the one beside this program.
    pub launcher: Option<PathBuf>,
    /// Return once the VM has arrived, and leave it running.
    pub detach: bool,
}

/// Starts a launcher, lets `migrate` move the VM to it, and stays at its console until it ends or
/// the terminal leaves it.
///
/// # Errors
/// The VM is not moved, or is lost later.
pub async fn receive(
    incoming: &Incoming<'_>,
    format: Format,
    stop: &mut EndSignals,
    migrate: impl AsyncFnOnce(&VmDir, &mut EndSignals) -> Result<(), CtlError>,
) -> Result<ExitCode, CtlError> {
    let manifest =
        Manifest::parse(&incoming.vmi.to_string()).map_err(in_manifest(incoming.source.root()))?;
    let name = manifest.text("/metadata/name").to_owned();
    let screen = Screen::new(format);
    let orphan_qemu = OrphanQemu::adopt();
    let dir = vm_dir::create_temporary()?;
    let started = prepare(incoming, &manifest, &dir);
    let (supervisor, mut control) = started.inspect_err(|_| vm_dir::remove(&dir, &[]))?;
    let moved = async {
        wait_until_ready(&name, &mut control, &screen, stop).await?;
        migrate(&dir, stop).await
    };
    match moved.await {
        Ok(()) => {}
        // The guest may be here, and must then not be ended.
        Err(error) if error.of::<NotArrived>().is_some() => {
            screen.note(&error.chain());
        }
        // It has removed everything but the log.
        Err(error) if matches!(error.of(), Some(SupervisorError::Failed(_))) => return Err(error),
        Err(error) => {
            end(supervisor, control).await;
            orphan_qemu.terminate().await;
            let log = incoming.source.path(TARGET_LOG);
            // A VM that has ended meanwhile takes it away.
            let kept = incoming.source.is_running() && fs::copy(dir.log_file(), &log).is_ok();
            vm_dir::remove(&dir, &[]);
            let detail = kept.then(|| format!("the target's log: {}", log.display()));
            return Err(error.with_details(detail.into_iter().collect()));
        }
    }
    let detach_at = incoming.detach.then_some(Phase::GuestArrived);
    let attachment = Attachment::new(&name, &dir, control, &screen);
    super::has_ended(supervisor, attachment.attend(detach_at, stop).await).await
}

/// Places the VM's files and starts the supervisor of its new launcher.
fn prepare(
    incoming: &Incoming<'_>,
    manifest: &Manifest,
    dir: &VmDir,
) -> Result<(Child, ControlClient), CtlError> {
    let source = incoming.source;
    last_images::check_links(source, || remains::guest(source.root()))?;
    super::mark_temporary(dir)?;
    link_images(incoming.source, manifest, dir)?;
    link_overlays(incoming.source, dir)?;
    config_data::copy(incoming.source, dir)?;
    dir.store_vmi(manifest.value())?;
    if let Ok(mut args) = SuperviseArgs::load(source) {
        args.peer = Some(dir.root().to_owned());
        args.store(source)?;
    }
    let supervise = SuperviseArgs {
        incoming: true,
        // The VM is not here yet.
        home: None,
        peer: Some(absolute(source.root())),
        start: StartArgs {
            emulate: incoming.emulate,
            launcher: incoming.launcher.clone(),
            ..StartArgs::default()
        },
        stop_when_up: false,
        ..SuperviseArgs::load(source).unwrap_or_default()
    };
    supervise.store(dir)?;
    super::start_supervisor(dir)
}

/// Shows the supervisor's reports until its launcher is ready.
async fn wait_until_ready(
    name: &str,
    control: &mut ControlClient,
    screen: &Screen,
    stop: &mut EndSignals,
) -> Result<(), CtlError> {
    let lost = || SupervisorError::Lost(name.to_owned());
    loop {
        let update = tokio::select! {
            update = control.next() => update.ok_or_else(lost)?,
            _ = stop.next() => fail!("{CANCELLED}"),
        };
        screen.show(&update);
        match update {
            Update::Phase {
                phase: Phase::TargetReady,
            } => return Ok(()),
            Update::Failed { message, details } => {
                return Err(SupervisorError::failed(message, details));
            }
            Update::Ended { .. } => return Err(lost().into()),
            _ => {}
        }
    }
}

/// Ends a supervisor whose launcher gets no VM. Its report on that is not the reason.
async fn end(mut supervisor: Child, mut control: ControlClient) {
    control.request(Request::Stop).await;
    let ended = async {
        while control.next().await.is_some() {}
        supervisor.wait().await
    };
    let _ = timeout(ABORT_TIMEOUT, ended).await;
}

/// Gives the old launcher's images to the new one.
fn link_images(source: &VmDir, manifest: &Manifest, dir: &VmDir) -> Result<(), CtlError> {
    let paths = PodPaths::default();
    for (index, (name, volume)) in manifest.volumes().enumerate() {
        if let Some(image) = images::destination(source, index, name, volume)
            && image.exists()
            && let Some(link) = images::destination(dir, index, name, volume)
        {
            images::link_image(&image, &link, true)?;
        }
        let hotplugged = paths.hotplug_image(name);
        if source.path(&hotplugged).exists() {
            images::link_image(&source.path(&hotplugged), &dir.path(&hotplugged), true)?;
        }
    }
    Ok(())
}

/// Gives the new launcher the overlays that track changed blocks: like the claims, both use the
/// same files.
fn link_overlays(source: &VmDir, dir: &VmDir) -> Result<(), FileError> {
    // Missing if no volume is tracked.
    let Ok(overlays) = fs::read_dir(source.path(cbt_dir(false))) else {
        return Ok(());
    };
    let target = dir.path(cbt_dir(false));
    fs::create_dir_all(&target).map_err(FileError::on("make", &target))?;
    for overlay in overlays.flatten() {
        let link = target.join(overlay.file_name());
        fs::hard_link(overlay.path(), &link).map_err(FileError::on("link", &link))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A guest may write the beginning of another format to its disk.
    #[test]
    fn an_image_is_linked_as_the_guest_has_left_it() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, dir) = (
            VmDir::at(root.path().to_owned()),
            VmDir::at(target.path().to_owned()),
        );
        let manifest = Manifest::parse(
            "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  domain: {memory: {guest: 64Mi}}\n  volumes:\n  - {name: data, persistentVolumeClaim: {claimName: data}}\n",
        )
        .unwrap();
        let claim = |dir: &VmDir| dir.path(&PodPaths::default().claim_image("data"));
        fs::create_dir_all(claim(&source).parent().unwrap()).unwrap();
        for content in [&b"QFI\xfb"[..], b"<html>", b""] {
            fs::write(claim(&source), content).unwrap();
            link_images(&source, &manifest, &dir).unwrap();
            assert_eq!(fs::read(claim(&dir)).unwrap(), content);
        }
    }
}
