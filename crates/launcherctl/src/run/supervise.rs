//! The supervisor of a VM: a process without a terminal that starts a `virt-launcher` with its own root and the embedded
//! libvirt, and does virt-handler's part over the same sockets as in a cluster. `run` starts it, and may end before it.
//!
//! ```text
//!  start launcher ─► ready ─► sync ─► running
//!                      │ a stop, a failure │ a stop, --until
//!                      ▼                   ▼
//!                     kill ─► guest is down ◄─ shutdown (kill after the grace period, or when forced)
//!                                   ▼
//!                                delete ─► the directory is removed ─► exit
//!
//! Of a VM that has failed, the reason and the launcher's log remain ([`super::failure`]).
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc};

use super::control::{CONTROL_SOCKET, Control, Phase, StopRequests, Update};
use super::launcher::{self, LauncherProcess};
use super::launcher_start::{LauncherOptions, start_launcher, with_log};
use super::network::{self, Network};
use super::orphan_qemu::OrphanQemu;
use super::progress::Progress;
use super::sidecars::{self, Sidecars};
use super::symptoms::{self, Symptom};
use super::until::Until;
use super::{StartArgs, console_hub, failure, incoming, log_file, vm_dir};
use crate::client::CallError;
use crate::error::{CtlError, RuntimeError};
use crate::events::MAX_QUEUED;
use crate::json::text_at;
use crate::notify_server::{self, notify_socket};
use crate::registry::VmDir;
use crate::relay::{RELAY_SOCKET, Relay};
use crate::run::error::RunError;
use crate::sidecar_program::SidecarProgram;
use api::pod_paths::PodPaths;
use os::signals::EndSignals;

/// Arguments of `supervise`. Standard input is the socket of the `run` that owns the VM.
#[derive(Debug, Args)]
pub struct SuperviseArgs {
    /// The VM's directory, with its VMI and images
    directory: PathBuf,
    /// Stop the VM when the text of --until has appeared
    #[arg(long)]
    stop_when_up: bool,
    /// The VM comes by a migration
    #[arg(long)]
    incoming: bool,
    #[command(flatten)]
    start: StartArgs,
}

/// Runs the VM until it ends, and reports to the clients of its control socket.
///
/// # Errors
/// If it cannot serve them; all other errors are reported to them.
pub async fn supervise(args: &SuperviseArgs) -> Result<ExitCode, CtlError> {
    // The terminal's signals and its end are for `run`.
    let _ = rustix::process::setsid();
    let signals = EndSignals::listen().map_err(RuntimeError)?;
    let orphan_qemu = OrphanQemu::adopt();
    let dir = VmDir::at(args.directory.clone());
    let owner = owner().map_err(RuntimeError)?;
    let (control, mut stop) = Control::serve(&dir.path(CONTROL_SOCKET), owner, Some(signals))?;
    let progress = Progress::new(control.updates());
    let vmi = dir.load_vmi()?;
    let result = if args.incoming {
        incoming::wait_and_run(&args.start, &vmi, &dir, &progress, &mut stop).await
    } else {
        with_or_without_kvm(args, &vmi, &dir, &progress, &mut stop, &orphan_qemu).await
    };
    if orphan_qemu.terminate().await && result.is_err() {
        progress.note("the QEMU of the launcher that ended is ended too");
    }
    let last = match result {
        Ok(end) => {
            super::forget(text_at(&vmi, "/metadata/name"), &dir);
            end.update()
        }
        Err(error) => failed(error, &vmi, &dir),
    };
    drop(progress);
    control.finish(last).await;
    Ok(ExitCode::SUCCESS)
}

/// Removes what the VM needed to run, and leaves the reason of its failure.
fn failed(error: CtlError, vmi: &Value, dir: &VmDir) -> Update {
    let name = text_at(vmi, "/metadata/name");
    let reason = error.chain();
    let error = with_log(error, &log_file(dir));
    let (message, mut details) = (error.chain(), error.details().to_vec());
    if failure::leave(dir, vmi, reason) {
        details.push(format!(
            "launcherctl status {name} shows this again; launcherctl stop {name} removes it"
        ));
    } else {
        super::forget(name, dir);
    }
    Update::Failed { message, details }
}

/// The stream to the owner. The launcher must not inherit it: the owner sees by its end that this process was killed.
fn owner() -> std::io::Result<UnixStream> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Runs the VM, a second time without KVM where that does not work.
async fn with_or_without_kvm(
    args: &SuperviseArgs,
    vmi: &Value,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
    orphan_qemu: &OrphanQemu,
) -> Result<End, CtlError> {
    let sidecars = sidecars::programs(vmi, &args.start.sidecars)?;
    let network = serve_network(dir)?;
    let mut start = Start {
        emulate: args.start.emulate,
        sidecars: &sidecars,
        network,
    };
    loop {
        let result = run_vm(args, &start, vmi, dir, progress, stop).await;
        match &result {
            Err(error) if !start.emulate && is_kvm_failure(error) => {
                progress.note(&format!(
                    "{}; starting again without KVM, as --emulate does",
                    error.chain()
                ));
                orphan_qemu.terminate().await;
                vm_dir::remove_stale_socket(dir)?;
                start.emulate = true;
            }
            _ => return result,
        }
    }
}

/// With what a launcher is started.
struct Start<'a> {
    /// Without KVM.
    emulate: bool,
    sidecars: &'a [SidecarProgram],
    /// A sidecar for the network is served.
    network: bool,
}

/// Serves the sidecar for the VM's network; false if it needs none.
fn serve_network(dir: &VmDir) -> Result<bool, CtlError> {
    match Network::load(dir)? {
        Some(network) => {
            network::sidecar::serve(network, dir)?;
            Ok(true)
        }
        None => Ok(false),
    }
}

fn is_kvm_failure(error: &CtlError) -> bool {
    match error.of() {
        Some(CallError::Refused { message, .. }) => symptoms::is_kvm_failure(message),
        _ => matches!(error.of(), Some(RunError::KvmFailed(_))),
    }
}

/// How a VM has ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its guest has ended, or was to.
    AsWanted,
    /// By a stop, before its guest was started.
    StoppedBeforeStart,
    /// By a stop, before the text of `--until` has appeared.
    StoppedBeforeUp,
    /// It has not come by its migration, which says why.
    NotArrived,
}

impl End {
    /// The supervisor's last update. Who has stopped the VM knows that.
    fn update(self) -> Update {
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

/// Runs the VM until it has ended.
async fn run_vm(
    args: &SuperviseArgs,
    start_with: &Start<'_>,
    vmi: &Value,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
) -> Result<End, CtlError> {
    let domain = [
        text_at(vmi, "/metadata/namespace"),
        text_at(vmi, "/metadata/name"),
    ]
    .join("_");
    vm_dir::remove_stale_domain(dir, &domain);
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    notify_server::serve(&dir.path(&notify_socket()), sender)?;
    let relay = Relay::serve(&dir.path(RELAY_SOCKET))?;
    let sidecars = Sidecars::start(start_with.sidecars, dir)?;
    let options = LauncherOptions {
        program: args.start.launcher.as_deref(),
        emulate: start_with.emulate,
        sidecars: start_with
            .sidecars
            .len()
            .saturating_add(start_with.network.into()),
        libvirt: "embed",
        pod_name: None,
    };
    let child = start_launcher(&options, vmi, dir)?;
    let mut launcher = LauncherProcess::new(vmi, child, events, relay);
    let started = tokio::select! {
        started = start(&mut launcher, args.start.limit(), dir, progress) => started.map(Some),
        () = stop.requested() => Ok(None),
    };
    if !matches!(started, Ok(Some(()))) {
        launcher.abort().await;
        sidecars.stop().await;
        return started.map(|_| End::StoppedBeforeStart);
    }
    let expected = Expected {
        text: args.start.until.as_deref(),
        timeout: args.start.limit(),
        boots: true,
        stop_when_up: args.stop_when_up,
    };
    let outcome = attend(&expected, &mut launcher, dir, progress, stop).await;
    let ended = match &outcome {
        // Its vCPUs do not run.
        Err(error) if matches!(error.of(), Some(RunError::KvmFailed(_))) => {
            launcher.force_off(progress).await
        }
        _ => launcher.end(progress, stop).await,
    };
    sidecars.stop().await;
    let outcome = outcome?;
    ended?;
    launcher.check_end()?;
    Ok(outcome)
}

/// Starts the guest.
async fn start(
    launcher: &mut LauncherProcess<'_>,
    limit: Duration,
    dir: &VmDir,
    progress: &Progress,
) -> Result<(), CtlError> {
    launcher.connect(&dir.cmd_socket()).await?;
    progress.phase(Phase::LauncherReady);
    launcher.sync(limit).await?;
    progress.phase(Phase::DomainRunning);
    Ok(())
}

/// What the guest is to write on its console.
pub(super) struct Expected<'a> {
    /// By which it is up.
    pub text: Option<&'a str>,
    /// What it has for that.
    pub timeout: Duration,
    /// Anything, as it boots.
    pub boots: bool,
    /// The guest is shut down once it is up.
    pub stop_when_up: bool,
}

/// Serves the console until the VM ends or is to be shut down.
///
/// # Errors
/// If the guest is not up in time, or the launcher has ended under it.
pub(super) async fn attend(
    expected: &Expected<'_>,
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
    let mut until = Until::new(expected.text);
    let silence = tokio::time::sleep(symptoms::SILENCE);
    tokio::pin!(silence);
    let mut is_silent = expected.boots && output.is_some();
    let timeout = expected.timeout;
    let deadline = tokio::time::sleep(timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            bytes = next_output(&mut output) => {
                is_silent = false;
                if until.seen_in(&bytes) {
                    progress.phase(Phase::GuestUp);
                    if expected.stop_when_up { return Ok(End::AsWanted); }
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
                let text = expected.text.unwrap_or_default().to_owned();
                progress.note(&format!(
                    "{text:?} has not appeared within {} s; the guest is asked to shut down, and forced off after {} s (Ctrl-C: at once)",
                    timeout.as_secs(),
                    launcher::grace(launcher.vmi()).as_secs()
                ));
                return Err(RunError::NotUp { text, timeout }.into());
            }
        }
    }
}

/// The guest has ended by itself.
fn ended(launcher: &LauncherProcess<'_>, is_awaited: bool) -> Result<End, CtlError> {
    launcher.check_end()?;
    if is_awaited {
        return Err(RunError::EndedBeforeUp.into());
    }
    Ok(End::AsWanted)
}

/// Says why the guest does not run, if it does not.
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
