//! The supervisor of a VM: a process without a terminal that starts a `virt-launcher` with its own
//! root and the embedded libvirt, and does virt-handler's part over the same sockets as in a
//! cluster. `run` starts it, and may end before it.
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

use clap::Args;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::attend::{End, Expected, attend};
use super::control::{Control, Phase, StopRequests, Update};
use super::error::RunError;
use super::launcher::LauncherProcess;
use super::launcher_start::{LauncherOptions, start_launcher, with_log};
use super::network::{self, Network};
use super::orphan_qemu::OrphanQemu;
use super::progress::Progress;
use super::registry::{CONTROL_SOCKET, VmDir};
use super::sidecar_program::SidecarProgram;
use super::sidecars::{self, Sidecars};
use super::start_args::StartArgs;
use super::{failure, symptoms, vm_dir};
use crate::error::{CtlError, RuntimeError};
use crate::json::text_at;
use crate::reports::events::MAX_QUEUED;
use crate::reports::notify_server::{self, notify_socket};
use client::CallError;
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
/// It cannot serve them; all other errors are reported to them.
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
    let result = with_or_without_kvm(args, &vmi, &dir, &progress, &mut stop, &orphan_qemu).await;
    if orphan_qemu.terminate().await && result.is_err() {
        progress.note("the QEMU of the launcher that ended is ended too");
    }
    let last = match result {
        Ok(end) => {
            super::remains::forget(text_at(&vmi, "/metadata/name"), &dir);
            end.update()
        }
        Err(error) => failed(error, &vmi, &dir),
    };
    drop(progress);
    control.finish(last).await;
    Ok(ExitCode::SUCCESS)
}

/// Removes the files for running the VM, and leaves the reason of its failure.
fn failed(error: CtlError, vmi: &Value, dir: &VmDir) -> Update {
    let name = text_at(vmi, "/metadata/name");
    let reason = error.chain();
    let error = with_log(error, &dir.log_file());
    let (message, mut details) = (error.chain(), error.details().to_vec());
    if failure::leave(dir, vmi, reason) {
        details.push(format!(
            "launcherctl status {name} shows this again; launcherctl stop {name} removes it"
        ));
    } else {
        super::remains::forget(name, dir);
    }
    Update::Failed { message, details }
}

/// The stream to the owner. The launcher must not inherit it: its end tells the owner that this
/// process was killed.
fn owner() -> std::io::Result<UnixStream> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Runs the VM, a second time without KVM if KVM does not work.
async fn with_or_without_kvm(
    args: &SuperviseArgs,
    vmi: &Value,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
    orphan_qemu: &OrphanQemu,
) -> Result<End, CtlError> {
    // What sidecars have made of the domain comes with it.
    let sidecars = if args.incoming {
        Vec::new()
    } else {
        sidecars::programs(vmi, &args.start.sidecars)?
    };
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

/// How to start a launcher.
struct Start<'a> {
    /// Without KVM.
    emulate: bool,
    sidecars: &'a [SidecarProgram],
    /// Whether a sidecar for the network is served.
    network: bool,
}

/// Serves the sidecar for the VM's network. Returns false if it needs none.
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

/// Runs the VM until it has ended.
async fn run_vm(
    args: &SuperviseArgs,
    start_with: &Start<'_>,
    vmi: &Value,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut StopRequests,
) -> Result<End, CtlError> {
    let (mut launcher, sidecars) = launch(args, start_with, vmi, dir)?;
    let started = tokio::select! {
        started = start(&mut launcher, args, dir, progress) => started,
        () = stop.requested() => Ok(false),
    };
    match started {
        Ok(true) => {}
        // It has come meanwhile.
        Ok(false) if args.incoming && launcher.has_guest().await => {
            launcher.end(progress, stop).await?;
            return Ok(End::AsWanted);
        }
        _ => {
            launcher.abort().await;
            sidecars.stop().await;
            return started.map(|_| match args.incoming {
                true => End::NotArrived,
                false => End::StoppedBeforeStart,
            });
        }
    }
    let expected = Expected {
        text: args.start.until.as_deref(),
        timeout: args.start.limit(),
        boots: !args.incoming,
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

/// Starts the sidecars and the launcher.
fn launch<'v>(
    args: &SuperviseArgs,
    start_with: &Start<'_>,
    vmi: &'v Value,
    dir: &VmDir,
) -> Result<(LauncherProcess<'v>, Sidecars), CtlError> {
    // A VM that comes has the overlays of its disks there already.
    if !args.incoming {
        let part = |pointer| text_at(vmi, pointer);
        let domain = [part("/metadata/namespace"), part("/metadata/name")].join("_");
        vm_dir::remove_stale_domain(dir, &domain);
    }
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    notify_server::serve(&dir.path(&notify_socket()), sender)?;
    let sidecars = Sidecars::start(start_with.sidecars, dir)?;
    // By its pod's name the launcher knows that it is to end if no guest comes. To receive one
    // takes libvirt's daemon.
    let pod_name = format!("launcherctl-{}", std::process::id());
    let sidecar_count = start_with.sidecars.len();
    let options = LauncherOptions {
        program: args.start.launcher.as_deref(),
        emulate: start_with.emulate,
        sidecars: sidecar_count.saturating_add(start_with.network.into()),
        libvirt: if args.incoming { "auto" } else { "embed" },
        pod_name: args.incoming.then_some(&pod_name),
    };
    let child = start_launcher(&options, vmi, dir)?;
    Ok((LauncherProcess::new(vmi, child, events), sidecars))
}

/// Waits until the guest runs: that of the VMI, or the one that is to come by a migration. `false`
/// if none comes.
async fn start(
    launcher: &mut LauncherProcess<'_>,
    args: &SuperviseArgs,
    dir: &VmDir,
    progress: &Progress,
) -> Result<bool, CtlError> {
    launcher.connect(&dir.cmd_socket()).await?;
    if args.incoming {
        progress.phase(Phase::TargetReady);
        let came = launcher.wait_for_guest(progress).await?;
        if came {
            progress.phase(Phase::GuestArrived);
        }
        return Ok(came);
    }
    progress.phase(Phase::LauncherReady);
    launcher.sync(args.start.limit()).await?;
    progress.phase(Phase::DomainRunning);
    Ok(true)
}
