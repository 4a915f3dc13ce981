//! A VM that comes by a migration: its launcher is started, and waits for it.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::attend::{End, Expected, attend};
use super::control::{Phase, StopRequests};
use super::launcher::LauncherProcess;
use super::launcher_start::{LauncherOptions, start_launcher};
use super::progress::Progress;
use super::registry::VmDir;
use super::start_args::StartArgs;
use crate::error::CtlError;
use crate::reports::events::MAX_QUEUED;
use crate::reports::notify_server::{self, notify_socket};
use crate::reports::relay::{RELAY_SOCKET, Relay};

/// The guest is up already.
const NOTHING: Expected<'_> = Expected {
    text: None,
    timeout: Duration::ZERO,
    boots: false,
    stop_when_up: false,
};

/// Starts the launcher, waits for the VM, and has it until it ends.
///
/// # Errors
/// If the launcher cannot be started, or the VM is lost.
pub(super) async fn wait_and_run(
    args: &StartArgs,
    vmi: &Value,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
) -> Result<End, CtlError> {
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    notify_server::serve(&dir.path(&notify_socket()), sender)?;
    let relay = Relay::serve(&dir.path(RELAY_SOCKET))?;
    let pod_name = format!("launcherctl-{}", std::process::id());
    let options = LauncherOptions {
        program: args.launcher.as_deref(),
        emulate: args.emulate,
        sidecars: 0,
        libvirt: "auto",
        pod_name: Some(&pod_name),
    };
    let child = start_launcher(&options, vmi, dir)?;
    let mut launcher = LauncherProcess::new(vmi, child, events, relay);
    let came = tokio::select! {
        came = wait_for_guest(&mut launcher, dir, progress) => came,
        // The guest may have come just now, and ends in order then.
        () = stop.requested() => {
            if launcher.has_guest().await {
                launcher.end(progress, stop).await?;
                return Ok(End::AsWanted);
            }
            Ok(false)
        }
    };
    if !matches!(came, Ok(true)) {
        launcher.abort().await;
        return came.map(|_| End::NotArrived);
    }
    let outcome = attend(&NOTHING, &mut launcher, dir, progress, stop).await;
    let ended = launcher.end(progress, stop).await;
    let outcome = outcome?;
    ended?;
    launcher.check_end()?;
    Ok(outcome)
}

/// Whether the guest has come.
async fn wait_for_guest(
    launcher: &mut LauncherProcess<'_>,
    dir: &VmDir,
    progress: &Progress,
) -> Result<bool, CtlError> {
    launcher.connect(&dir.cmd_socket()).await?;
    progress.phase(Phase::TargetReady);
    let came = launcher.wait_for_guest(progress).await?;
    if came {
        progress.phase(Phase::GuestArrived);
    }
    Ok(came)
}
