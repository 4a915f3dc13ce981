//! Serves a running guest's console until the guest ends or should be shut down.

use tokio::sync::broadcast;

use super::console_hub;
use super::control::{Phase, Progress, StopRequests, Update};
use super::error::RunError;
use super::launcher::{self, LauncherProcess};
use super::registry::VmDir;
use super::start_args::SuperviseArgs;
use super::symptoms::{self, Symptom};
use super::until::Until;
use crate::error::{CtlError, fail};
use api::pod_paths::PodPaths;

/// How a VM ended normally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The guest ended, or its shutdown was requested.
    AsWanted,
    /// Stopped before its guest was started.
    StoppedBeforeStart,
    /// Stopped before the text of `--until` appeared.
    StoppedBeforeUp,
    /// It did not arrive by its migration, which reports why.
    NotArrived,
}

impl End {
    /// The supervisor's last update. A client that stopped the VM needs no failure.
    pub fn update(self) -> Update {
        let failure = match self {
            Self::AsWanted | Self::NotArrived => None,
            Self::StoppedBeforeStart => Some("the VM was stopped before its guest was started"),
            Self::StoppedBeforeUp => {
                Some("the guest was stopped before the text of --until appeared")
            }
        };
        Update::Ended {
            code: (self != Self::AsWanted).into(),
            failure: failure.map(str::to_owned),
        }
    }
}

/// Serves the console until the VM ends or should be shut down.
///
/// # Errors
/// The guest is not up in time, or the launcher ended under it.
pub(super) async fn attend(
    args: &SuperviseArgs,
    launcher: &mut LauncherProcess<'_>,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
) -> Result<End, CtlError> {
    let paths = PodPaths::default();
    let serial = dir.path(&paths.serial_socket(launcher.uid()));
    let mut output = if serial.exists() {
        let qemu_log = dir.path(&paths.serial_log(launcher.uid()));
        Some(console_hub::serve(&serial, qemu_log, dir).await?)
    } else {
        None
    };
    progress.console(output.is_some());
    let mut until = Until::new(args.start.until.as_deref());
    let silence = tokio::time::sleep(symptoms::SILENCE);
    tokio::pin!(silence);
    let mut is_silent = !args.incoming && output.is_some();
    let timeout = args.start.limit();
    let deadline = tokio::time::sleep(timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            bytes = next_output(&mut output) => {
                is_silent = false;
                if until.seen_in(&bytes) {
                    progress.phase(Phase::GuestUp);
                    if args.stop_when_up { return Ok(End::AsWanted); }
                }
            },
            is_down = launcher.next_event(progress) => {
                let is_down = is_down?;
                report_symptom(launcher, progress)?;
                if is_down {
                    return ended(launcher, until.is_waiting());
                }
            },
            () = &mut silence, if is_silent => {
                is_silent = false;
                progress.note(&symptoms::of_silence(launcher.name(), launcher.is_emulated()));
            },
            () = stop.requested() => {
                return Ok(if until.is_waiting() { End::StoppedBeforeUp } else { End::AsWanted });
            }
            () = &mut deadline, if until.is_waiting() => {
                let text = args.start.until.clone().unwrap_or_default();
                progress.note(&format!(
                    "{text:?} has not appeared within {} s; the guest is asked to shut down, and forced off after {} s (Ctrl-C: at once)",
                    timeout.as_secs(),
                    launcher::grace(launcher.vmi()).as_secs()
                ));
                return Err(RunError::NotUp(text, timeout).into());
            }
        }
    }
}

/// The guest has ended on its own.
fn ended(launcher: &LauncherProcess<'_>, is_awaited: bool) -> Result<End, CtlError> {
    launcher.check_end()?;
    if is_awaited {
        fail!("the guest ended before it was up");
    }
    Ok(End::AsWanted)
}

/// Reports why the guest does not run, if so.
fn report_symptom(launcher: &mut LauncherProcess<'_>, progress: &Progress) -> Result<(), CtlError> {
    match launcher.take_symptom() {
        Some(Symptom::KvmFailed(why)) => Err(RunError::KvmFailed(why).into()),
        Some(Symptom::Note(text)) => {
            progress.note(&text);
            Ok(())
        }
        None => Ok(()),
    }
}

async fn next_output(output: &mut Option<broadcast::Receiver<Vec<u8>>>) -> Vec<u8> {
    loop {
        let Some(receiver) = output else {
            return std::future::pending().await;
        };
        match receiver.recv().await {
            Ok(bytes) => return bytes,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => *output = None,
        }
    }
}
