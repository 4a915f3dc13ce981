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
use super::control::{Control, RunPhase, StopRequests, Update};
use super::error::RunError;
use super::launcher::{LauncherProcess, Vm};
use super::launcher_log::reason;
use super::launcher_start::start_launcher;
use super::network::{self, HostNetwork};
use super::processes::terminate_all;
use super::sidecars;
use super::start_args::SuperviseArgs;
use super::vm_dir::{CONTROL_SOCKET, VmDir};
use super::{failure, images, remains};
use crate::error::{CtlError, RuntimeError};
use crate::files::absolute;
use crate::reports::events::MAX_QUEUED;
use crate::reports::notify_server;
use api::pod_paths::{NOTIFY_SOCKET, PodPaths};
use client::CallError;
use os::signals::EndSignals;

/// Runs the VM until it ends, and reports to the clients of its control socket.
///
/// # Errors
/// It cannot serve them, or read the VM's files; all other errors are reported to them.
pub async fn supervise(directory: &Path) -> Result<ExitCode, CtlError> {
    // The terminal's signals and its end are for `run`.
    let _ = rustix::process::setsid();
    let signals = EndSignals::listen().map_err(RuntimeError)?;
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
    };
    let mut result = run(vm, &mut stop).await;
    let mut without_kvm = args.clone();
    without_kvm.start.emulate = true;
    if result.as_ref().is_err_and(is_of_kvm) && !args.start.emulate {
        progress.note("KVM does not work here; starting again without it, as --emulate does");
        terminate_all(dir.root()).await;
        let args = &without_kvm;
        result = match dir.remove_stale() {
            Ok(()) => run(Vm { args, ..vm }, &mut stop).await,
            Err(error) => Err(error),
        };
    }
    // Of a launcher that was killed.
    terminate_all(dir.root()).await;
    let last = match result {
        Ok(last) => {
            remains::forget(&dir);
            last
        }
        Err(error) => failed(error, vm),
    };
    control.finish(last).await;
    Ok(ExitCode::SUCCESS)
}

/// Removes the files for running the VM, and leaves the reason of its failure.
fn failed(error: CtlError, vm: Vm<'_>) -> Update {
    let (name, dir) = (vm.name(), vm.dir);
    let (log, mut details) = (dir.log_file(), error.details().to_vec());
    let mut message = reason(&error, &log);
    if vm.args.start.emulate {
        message = message.replace(", or run with --emulate", "");
    }
    if error.chain().contains("request alignment") {
        message.push_str(&images::odd_sizes(vm.vmi, dir));
    }
    if log.metadata().is_ok_and(|it| it.len() > 0) {
        details.push(format!("the launcher's log: {}", absolute(&log).display()));
    }
    if failure::leave(dir, vm.vmi, message.clone()) {
        details.push(format!(
            "launcherctl status {name} shows the reason again and launcherctl logs {name} the rest, until the next run or launcherctl stop {name}"
        ));
    } else {
        remains::forget(dir);
    }
    Update::Failed { message, details }
}

/// Whether KVM does not work here, as in many nested machines: emulation is the fallback.
fn is_of_kvm(error: &CtlError) -> bool {
    matches!(error.of(), Some(CallError::Refused { message, .. }) if blames_kvm(message))
}

/// The last two signs are of QEMU's assertions. A path may have a directory named KVM.
fn blames_kvm(message: &str) -> bool {
    let signs = ["/dev/kvm", "initialize kvm", "/accel/kvm/", "/i386/kvm/"];
    signs.iter().any(|it| message.contains(it))
        || message
            .split_whitespace()
            .any(|word| word.contains("KVM") && !word.contains('/'))
}

/// The stream to the owner. The launcher must not inherit it: its end tells the owner that this
/// process was killed.
fn owner() -> std::io::Result<UnixStream> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Runs the VM until it has ended. Returns the last update.
async fn run(vm: Vm<'_>, stop: &mut StopRequests) -> Result<Update, CtlError> {
    let (mut launcher, mut sidecars) = launch(vm)?;
    let started = tokio::select! {
        started = start(vm, &mut launcher, &mut sidecars) => started,
        () = stop.requested() => Ok(false),
    };
    match started {
        Ok(true) => {}
        // It has come meanwhile.
        Ok(false) if vm.args.incoming && launcher.has_guest().await => {
            launcher.end(stop).await?;
            return Ok(Update::Ended(None));
        }
        _ => {
            launcher.abort().await;
            sidecars::stop(sidecars).await;
            started?;
            // `migrate` reports why a VM has not come.
            let why = "the VM was stopped before its guest was started";
            return Ok(Update::Ended((!vm.args.incoming).then(|| why.to_owned())));
        }
    }
    let outcome = attend(vm, &mut launcher, stop).await;
    let ended = launcher.end(stop).await;
    sidecars::stop(sidecars).await;
    let outcome = outcome?;
    ended?;
    launcher.check_end()?;
    Ok(outcome)
}

/// Starts the sidecars and the launcher.
fn launch(vm: Vm<'_>) -> Result<(LauncherProcess<'_>, Vec<Child>), CtlError> {
    let programs = match vm.args.incoming {
        // A migration brings what hook sidecars have made of the domain.
        true => Vec::new(),
        false => sidecars::programs(vm.vmi, &vm.args.start.sidecars)?,
    };
    let mut count = programs.len();
    if let Some(network) = HostNetwork::load(vm.dir)? {
        network::sidecar::serve(network, vm.dir)?;
        count += 1;
    }
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    let notify_socket = PodPaths::default().shared(NOTIFY_SOCKET);
    notify_server::serve(&vm.dir.path(&notify_socket), sender)?;
    let sidecars = sidecars::start(&programs, vm.dir)?;
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
                let late = "the launcher is not ready".to_owned();
                return Err(RunError::Late(late, limit).into());
            }
        },
        ended = sidecars::ended(sidecars, vm.dir) => return Err(ended.into()),
    }
    if vm.args.incoming {
        vm.progress.phase(RunPhase::TargetReady);
        let came = launcher.wait_for_guest().await?;
        if came {
            vm.progress.phase(RunPhase::GuestArrived);
        }
        return Ok(came);
    }
    vm.progress.phase(RunPhase::LauncherReady);
    launcher.sync(limit).await?;
    vm.progress.phase(RunPhase::DomainRunning);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_blamed_for_what_qemu_says_of_it_and_not_for_a_path() {
        for message in [
            "Could not access KVM kernel module: No such file or directory",
            "failed to initialize kvm: Permission denied",
            "../target/i386/kvm/kvm.c:3220: kvm_buf_set_msrs: Assertion failed",
        ] {
            assert!(blames_kvm(message), "{message}");
        }
        for message in [
            "cannot open /home/me/KVM/web/disk.img: No such file or directory",
            "cannot open /kvm/kvm-images/disk.img: No such file or directory",
        ] {
            assert!(!blames_kvm(message), "{message}");
        }
    }
}
