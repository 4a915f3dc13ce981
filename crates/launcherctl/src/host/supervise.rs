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

use std::process::ExitCode;

use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::attend::{End, attend};
use super::control::{Control, Phase, Progress, StopRequests, Update};
use super::error::RunError;
use super::launcher::LauncherProcess;
use super::launcher_start::{start_launcher, with_log};
use super::network::{self, Network};
use super::orphan_qemu::OrphanQemu;
use super::registry::{CONTROL_SOCKET, VmDir};
use super::sidecar_program::SidecarProgram;
use super::sidecars::{self, Sidecars};
use super::start_args::SuperviseArgs;
use super::{failure, symptoms, vm_dir};
use crate::error::{CtlError, RuntimeError};
use crate::json::text_at;
use crate::reports::events::MAX_QUEUED;
use crate::reports::notify_server::{self, notify_socket};
use client::CallError;
use os::signals::EndSignals;

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
    let progress = control.progress();
    let vmi = dir.load_vmi()?;
    let vm = SupervisedVm {
        args,
        vmi: &vmi,
        dir: &dir,
        progress,
        orphan_qemu: &orphan_qemu,
    };
    let result = vm.run_with_or_without_kvm(&mut stop).await;
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

fn is_kvm_failure(error: &CtlError) -> bool {
    match error.of() {
        Some(CallError::Refused { message, .. }) => symptoms::is_kvm_failure(message),
        _ => matches!(error.of(), Some(RunError::KvmFailed(_))),
    }
}

/// The VM, and what its supervisor was started with.
struct SupervisedVm<'a> {
    args: &'a SuperviseArgs,
    vmi: &'a Value,
    dir: &'a VmDir,
    progress: &'a Progress,
    orphan_qemu: &'a OrphanQemu,
}

/// The hook sidecars of a VM.
struct Hooks {
    programs: Vec<SidecarProgram>,
    /// Whether one for the network is served.
    network: bool,
}

impl<'a> SupervisedVm<'a> {
    /// Runs the VM, a second time without KVM if KVM does not work.
    async fn run_with_or_without_kvm(&self, stop: &mut StopRequests) -> Result<End, CtlError> {
        let hooks = Hooks {
            // What sidecars have made of the domain comes with it.
            programs: if self.args.incoming {
                Vec::new()
            } else {
                sidecars::programs(self.vmi, &self.args.start.sidecars)?
            },
            network: self.serve_network()?,
        };
        let mut emulate = self.args.start.emulate;
        loop {
            let result = self.run(&hooks, emulate, stop).await;
            match &result {
                Err(error) if !emulate && is_kvm_failure(error) => {
                    self.progress.note(&format!(
                        "{}; starting again without KVM, as --emulate does",
                        error.chain()
                    ));
                    self.orphan_qemu.terminate().await;
                    vm_dir::remove_stale_socket(self.dir)?;
                    emulate = true;
                }
                _ => return result,
            }
        }
    }

    /// Serves the sidecar for the VM's network. Returns false if it needs none.
    fn serve_network(&self) -> Result<bool, CtlError> {
        match Network::load(self.dir)? {
            Some(network) => {
                network::sidecar::serve(network, self.dir)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Runs the VM until it has ended.
    async fn run(
        &self,
        hooks: &Hooks,
        emulate: bool,
        stop: &mut StopRequests,
    ) -> Result<End, CtlError> {
        let (mut launcher, sidecars) = self.launch(hooks, emulate)?;
        let started = tokio::select! {
            started = self.start(&mut launcher) => started,
            () = stop.requested() => Ok(false),
        };
        match started {
            Ok(true) => {}
            // It has come meanwhile.
            Ok(false) if self.args.incoming && launcher.has_guest().await => {
                launcher.end(self.progress, stop).await?;
                return Ok(End::AsWanted);
            }
            _ => {
                launcher.abort().await;
                sidecars.stop().await;
                return started.map(|_| match self.args.incoming {
                    true => End::NotArrived,
                    false => End::StoppedBeforeStart,
                });
            }
        }
        let outcome = attend(self.args, &mut launcher, self.dir, self.progress, stop).await;
        let ended = match &outcome {
            // Its vCPUs do not run.
            Err(error) if matches!(error.of(), Some(RunError::KvmFailed(_))) => {
                launcher.force_off(self.progress).await
            }
            _ => launcher.end(self.progress, stop).await,
        };
        sidecars.stop().await;
        let outcome = outcome?;
        ended?;
        launcher.check_end()?;
        Ok(outcome)
    }

    /// Starts the sidecars and the launcher.
    fn launch(
        &self,
        hooks: &Hooks,
        emulate: bool,
    ) -> Result<(LauncherProcess<'a>, Sidecars), CtlError> {
        // A VM that comes has the overlays of its disks there already.
        if !self.args.incoming {
            let part = |pointer| text_at(self.vmi, pointer);
            let domain = [part("/metadata/namespace"), part("/metadata/name")].join("_");
            vm_dir::remove_stale_domain(self.dir, &domain);
        }
        let (sender, events) = mpsc::channel(MAX_QUEUED);
        notify_server::serve(&self.dir.path(&notify_socket()), sender)?;
        let sidecars = Sidecars::start(&hooks.programs, self.dir)?;
        let count = hooks.programs.len().saturating_add(hooks.network.into());
        let child = start_launcher(self.args, emulate, count, self.vmi, self.dir)?;
        Ok((LauncherProcess::new(self.vmi, child, events), sidecars))
    }

    /// Waits until the guest runs, started from the VMI or received by a migration. `false` if a
    /// migration does not arrive.
    async fn start(&self, launcher: &mut LauncherProcess<'_>) -> Result<bool, CtlError> {
        launcher.connect(&self.dir.cmd_socket()).await?;
        if self.args.incoming {
            self.progress.phase(Phase::TargetReady);
            let came = launcher.wait_for_guest(self.progress).await?;
            if came {
                self.progress.phase(Phase::GuestArrived);
            }
            return Ok(came);
        }
        self.progress.phase(Phase::LauncherReady);
        launcher.sync(self.args.start.limit()).await?;
        self.progress.phase(Phase::DomainRunning);
        Ok(true)
    }
}
