//! A VM of `run` that arrives from another launcher on this machine: starts a second launcher for
//! it, with its own supervisor, as `run` does.
//!
//! ```text
//!  migrate:     link images ─► start the supervisor ─► ready ─► migrate ─► leave
//!  supervisor:                  start launcher ─► ready ─► wait for the guest ─► as for any VM of run
//! ```
//!
//! The second launcher runs libvirt with a daemon: the driver in the launcher's own process can
//! send a VM, but not receive one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;
use tokio::time::timeout;

use crate::error::{CtlError, fail};
use crate::host::control::{ControlClient, ControlRequest, RunPhase, SupervisorError, Update};
use crate::host::processes::terminate_all;
use crate::host::start_args::{StartArgs, SuperviseArgs};
use crate::host::vm_dir::VmDir;
use crate::host::{config_data, images, new_dir};
use crate::manifest::{Manifest, in_manifest};
use crate::verbs::screen::Screen;
use crate::view::output::Format;
use api::pod_paths::PodPaths;
use os::signals::EndSignals;

/// Limit for the supervisor to end a launcher that gets no VM.
const ABORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The guest has left, but has not arrived in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the guest has left the source, and its arrival at the target in {root} is not reported after {1} s; the target's log says more",
    root = .0.display()
)]
pub struct NotArrived(pub PathBuf, pub u64);

/// A signal came before the migration started.
pub const CANCELLED: &str =
    "cancelled before the migration began, and the guest runs on where it was";

/// A signal came while the arrival of a guest that has left was waited for.
const LEFT: &str =
    "no longer waiting; the guest has left its source, and its new launcher keeps it";

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
}

/// Starts a launcher, and lets `migrate` move the VM to it.
///
/// # Errors
/// The VM is not moved.
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
    let dir = new_dir::create_temporary()?;
    let started = prepare(incoming, &manifest, &dir);
    let (supervisor, mut control) = started.inspect_err(|_| dir.remove(&[]))?;
    let moved = async {
        let phase = RunPhase::TargetReady;
        wait_for(phase, &name, &mut control, &screen, stop, CANCELLED).await?;
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
            terminate_all(dir.root()).await;
            dir.remove(&[]);
            return Err(error);
        }
    }
    let (phase, left) = (RunPhase::GuestArrived, LEFT);
    let arrived = wait_for(phase, &name, &mut control, &screen, stop, left).await;
    // Else its supervisor would end the only guest.
    control.request(ControlRequest::Detach).await;
    arrived?;
    screen.note(&format!("{name} runs on"));
    Ok(ExitCode::SUCCESS)
}

/// Places the VM's files and starts the supervisor of its new launcher.
fn prepare(
    incoming: &Incoming<'_>,
    manifest: &Manifest,
    dir: &VmDir,
) -> Result<(Child, ControlClient), CtlError> {
    link_images(incoming.source, manifest, dir)?;
    config_data::copy(incoming.source, dir)?;
    dir.store_vmi(manifest.value())?;
    let supervise = SuperviseArgs {
        incoming: true,
        start: StartArgs {
            emulate: incoming.emulate,
            launcher: incoming.launcher.clone(),
            ..StartArgs::default()
        },
        stop_when_up: false,
    };
    supervise.store(dir)?;
    super::start_supervisor(dir)
}

/// Shows the supervisor's reports until the VM has reached a phase.
async fn wait_for(
    wanted: RunPhase,
    name: &str,
    control: &mut ControlClient,
    screen: &Screen,
    stop: &mut EndSignals,
    cancelled: &str,
) -> Result<(), CtlError> {
    loop {
        let update = tokio::select! {
            biased;
            update = control.next() => update?,
            _ = stop.next() => fail!("{cancelled}"),
        };
        screen.show(&update);
        match update {
            Update::Phase { phase } if phase == wanted => return Ok(()),
            Update::Ended(_) => return Err(SupervisorError::Lost(name.to_owned()).into()),
            _ => {}
        }
    }
}

/// Ends a supervisor whose launcher gets no VM. Its report on that is not the reason.
async fn end(mut supervisor: Child, mut control: ControlClient) {
    control.request(ControlRequest::Stop).await;
    let ended = async {
        while control.next().await.is_ok() {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
