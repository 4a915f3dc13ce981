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

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::mpsc;

use super::attend::attend;
use super::control::{Control, Phase, StopRequests, Update};
use super::error::RunError;
use super::launcher::{LauncherProcess, Vm};
use super::launcher_log::{reason, with_log};
use super::launcher_start::start_launcher;
use super::network::{self, Network};
use super::orphan_qemu::OrphanQemu;
use super::registry::{CONTROL_SOCKET, VmDir};
use super::sidecar_program::SidecarProgram;
use super::sidecars;
use super::start_args::SuperviseArgs;
use super::{failure, home, images, last_images, remains, vm_dir};
use crate::error::{CtlError, RuntimeError, text_error};
use crate::json::text_at;
use crate::reports::events::MAX_QUEUED;
use crate::reports::notify_server::{self, notify_socket};
use client::CallError;
use client::problems::{is_kvm_failure, memory_event};
use os::logging::chain;
use os::procfs::memory_events;
use os::signals::EndSignals;

/// Runs the VM until it ends, and reports to the clients of its control socket.
///
/// # Errors
/// It cannot serve them; all other errors are reported to them.
pub async fn supervise(directory: &Path) -> Result<ExitCode, CtlError> {
    // The terminal's signals and its end are for `run`.
    let _ = rustix::process::setsid();
    let signals = EndSignals::listen().map_err(RuntimeError)?;
    let orphan_qemu = OrphanQemu::adopt();
    let dir = VmDir::at(directory.to_owned());
    let owner = owner().map_err(RuntimeError)?;
    let (control, mut stop) = Control::serve(&dir.path(CONTROL_SOCKET), owner, Some(signals))?;
    let progress = &control.progress;
    let (vmi, args) = (dir.load_vmi()?, SuperviseArgs::load(&dir)?);
    let vm = Vm {
        args: &args,
        vmi: &vmi,
        dir: &dir,
        progress,
        emulate: args.start.emulate,
    };
    let kills = || memory_event(&memory_events("self"), "oom_kill");
    let before = kills();
    let result = run_with_or_without_kvm(vm, &orphan_qemu, &mut stop).await;
    if orphan_qemu.terminate().await && result.is_err() {
        progress.note("the QEMU of the launcher that ended is ended too");
    }
    if let Err(error) = home::give_back(&dir) {
        let root = dir.root().display();
        progress.note(&format!(
            "a disk of the VM stays in {root}: {}",
            chain(&error)
        ));
    }
    let notes = last_images::give_back(&dir).unwrap_or_else(|image| {
        let image = image.display();
        vec![format!(
            "the last link to an image is {image}, which stays with its directory"
        )]
    });
    let lost = last_images::lost(&dir);
    // Nobody may see the notes.
    let is_trace_needed = !lost.is_empty() && !stop.is_requested();
    let notes = [notes, lost].concat();
    notes.iter().for_each(|text| progress.note(text));
    let last = match result {
        Ok(last) => {
            let reason = "its guest has ended".to_owned();
            if !(is_trace_needed && failure::leave(&dir, vm.vmi, reason, notes)) {
                remains::forget(vm.name(), &dir);
            }
            last
        }
        Err(error) => failed(error, kills() > before, vm, notes),
    };
    control.finish(last).await;
    Ok(ExitCode::SUCCESS)
}

/// Removes the files for running the VM, and leaves the reason of its failure.
fn failed(error: CtlError, memory_ran_out: bool, vm: Vm<'_>, notes: Vec<String>) -> Update {
    let error = match memory_ran_out {
        true => text_error!("memory ran out, and the kernel killed a process of the VM's cgroup (raise its memory.max, or lower spec.domain.memory.guest)").caused_by(error.into_source()).into(),
        false => error,
    };
    let (name, dir) = (vm.name(), vm.dir);
    let for_user = |text| images::with_users_files(text, vm.vmi, dir, &vm.args.files);
    let reason = for_user(reason(&error, &dir.log_file()));
    let error = with_log(error, &dir.log_file());
    let message = for_user(error.chain());
    let mut details = error.details().to_vec();
    if failure::leave(dir, vm.vmi, reason, notes) {
        details.push(format!(
            "launcherctl status {name} shows the reason again and launcherctl logs {name} the rest, until the next run or launcherctl stop {name}"
        ));
    } else {
        remains::forget(name, dir);
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

fn is_of_kvm(error: &CtlError) -> bool {
    match error.of() {
        Some(CallError::Refused { message, .. }) => is_kvm_failure(message),
        _ => matches!(error.of(), Some(RunError::KvmFailed)),
    }
}

/// Runs the VM, a second time without KVM if KVM does not work.
async fn run_with_or_without_kvm(
    mut vm: Vm<'_>,
    orphan_qemu: &OrphanQemu,
    stop: &mut StopRequests,
) -> Result<Update, CtlError> {
    let network = Network::load(vm.dir)?;
    let hooks = Hooks {
        // What sidecars have made of the domain comes with it.
        programs: match vm.args.incoming {
            true => Vec::new(),
            false => sidecars::programs(vm.vmi, &vm.args.start.sidecars)?,
        },
        has_network: network.is_some(),
    };
    if let Some(network) = network {
        network::sidecar::serve(network, vm.dir)?;
    }
    loop {
        match run(vm, &hooks, stop).await {
            Err(error) if !vm.emulate && is_of_kvm(&error) => {
                let why = error.chain();
                let note = format!("{why}; starting again without KVM, as --emulate does");
                vm.progress.note(&note);
                orphan_qemu.terminate().await;
                vm_dir::remove_stale_socket(vm.dir)?;
                vm.emulate = true;
            }
            result => return result,
        }
    }
}

/// The hook sidecars of a VM.
struct Hooks {
    programs: Vec<SidecarProgram>,
    /// Whether one for the network is served.
    has_network: bool,
}

/// Runs the VM until it has ended. Returns the last update.
async fn run(vm: Vm<'_>, hooks: &Hooks, stop: &mut StopRequests) -> Result<Update, CtlError> {
    let (mut launcher, mut sidecars) = launch(vm, hooks)?;
    let started = tokio::select! {
        started = start(vm, &mut launcher, &mut sidecars) => started,
        () = stop.requested() => Ok(false),
    };
    match started {
        Ok(true) => {}
        // It has come meanwhile.
        Ok(false) if vm.args.incoming && launcher.has_guest().await => {
            launcher.end(stop).await?;
            return Ok(Update::ended());
        }
        _ => {
            launcher.abort().await;
            sidecars::stop(sidecars).await;
            started?;
            // `migrate` reports why a VM has not come.
            let why = "the VM was stopped before its guest was started";
            return Ok(Update::ended_early((!vm.args.incoming).then_some(why)));
        }
    }
    let outcome = attend(vm, &mut launcher, stop).await;
    let ended = match &outcome {
        // Its vCPUs do not run.
        Err(error) if matches!(error.of(), Some(RunError::KvmFailed)) => launcher.force_off().await,
        _ => launcher.end(stop).await,
    };
    sidecars::stop(sidecars).await;
    let outcome = outcome?;
    ended?;
    launcher.check_end()?;
    Ok(outcome)
}

/// Starts the sidecars and the launcher.
fn launch<'a>(vm: Vm<'a>, hooks: &Hooks) -> Result<(LauncherProcess<'a>, Vec<Child>), CtlError> {
    // A VM that comes has the overlays of its disks there already.
    if !vm.args.incoming {
        let namespace = text_at(vm.vmi, "/metadata/namespace");
        vm_dir::remove_stale_domain(vm.dir, &format!("{namespace}_{}", vm.name()));
    }
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    notify_server::serve(&vm.dir.path(&notify_socket()), sender)?;
    let sidecars = sidecars::start(&hooks.programs, vm.dir)?;
    let count = hooks.programs.len() + usize::from(hooks.has_network);
    let child = start_launcher(vm, count)?;
    Ok((LauncherProcess::new(vm, child, events), sidecars))
}

/// Waits until the guest runs, started from the VMI or received by a migration. `false` if a
/// migration does not arrive.
async fn start(
    vm: Vm<'_>,
    launcher: &mut LauncherProcess<'_>,
    sidecars: &mut [Child],
) -> Result<bool, CtlError> {
    // migrate has its own limit.
    let limit = match vm.args.incoming {
        true => Duration::MAX,
        false => vm.args.start.limit(),
    };
    tokio::select! {
        connected = tokio::time::timeout(limit, launcher.connect()) => match connected {
            Ok(connected) => connected?,
            Err(_) => {
                let late = sidecars::late(sidecars.len(), vm.dir);
                return Err(RunError::Late(late, limit).into());
            }
        },
        ended = sidecars::ended(sidecars, vm.dir) => return Err(ended.into()),
    }
    if vm.args.incoming {
        vm.progress.phase(Phase::TargetReady);
        let came = launcher.wait_for_guest().await?;
        if came {
            vm.progress.phase(Phase::GuestArrived);
        }
        return Ok(came);
    }
    vm.progress.phase(Phase::LauncherReady);
    launcher.sync(limit).await?;
    launcher.until_reported().await?;
    vm.progress.phase(Phase::DomainRunning);
    Ok(true)
}
