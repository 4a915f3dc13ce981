//! Forces the guest off, with SIGKILL to QEMU before libvirt gives up.
//!
//! ```text
//!   destroy ─► libvirt ─► SIGTERM ──(QEMU writes its caches)──► ended ─► Shutoff, Destroyed
//!                            └── still there after `patience` ─► SIGKILL ──┘
//! ```

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::qemu::find_qemu;
use crate::launcher::vm::{JobKind, Request};
use libvirt::{ChangeableDomain, DomainState};
use os::process::Process;

/// How long a kill by virt-handler waits for QEMU to exit after SIGTERM. libvirt gives up after 15
/// s and then takes the exit for a crash. virt-handler waits 20 s.
pub(in crate::launcher) const KILL_PATIENCE: Duration = Duration::from_secs(13);

pub struct Killer {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    /// Where libvirt writes the PID of the domain's QEMU.
    pub(in crate::launcher) qemu_pid_file: PathBuf,
}

impl Killer {
    /// `KillVirtualMachine` (`virDomainDestroyFlags`): forces the guest off. QEMU gets `patience`
    /// to write its caches, then SIGKILL. Waits for no other change: a start that hangs is killed
    /// too. A missing domain is not an error. It goes on if the caller gives up.
    ///
    /// # Errors
    /// libvirt's; [`LauncherError::Slow`] if it takes too long.
    // D-vm-6, D-vm-19 (docs/differences.md).
    pub async fn kill(self: &Arc<Self>, patience: Duration) -> Result<(), LauncherError> {
        let this = self.clone();
        let killed = tokio::spawn(async move { this.kill_to_end(patience).await });
        let what = "killing the domain";
        killed.await.unwrap_or(Err(LauncherError::Worker { what }))
    }

    async fn kill_to_end(&self, patience: Duration) -> Result<(), LauncherError> {
        let Some(permit) = self.libvirt.vm.permit(Request::Kill).await?.into_permit()? else {
            return Ok(());
        };
        // First: libvirt has nothing to end of a start that it has not begun, so the start looks at
        // this before and after.
        self.libvirt.vm.cancel(JobKind::Start);
        let has_not_run = !self.libvirt.vm.snapshot().phase.has_run();
        let (begins, has_begun) = oneshot::channel();
        let destroy = move |domain| destroy(domain, has_not_run, begins);
        let mut destroyed = pin!(self.libvirt.kill(&permit, destroy));
        let is_too_long = async {
            // `patience` begins with libvirt's `destroy`. A QEMU is not killed while libvirt hangs
            // before that; the call ends with `Slow`.
            if has_begun.await.is_err() {
                pending::<()>().await;
            }
            sleep(patience).await;
        };
        tokio::select! {
            result = &mut destroyed => return result,
            () = is_too_long => self.kill_qemu(),
        }
        destroyed.await
    }

    /// The domain's QEMU process. Call it on a runtime.
    ///
    /// # Errors
    /// QEMU does not run, or its PID file cannot be read.
    pub fn find_qemu(&self) -> io::Result<Process> {
        find_qemu(&self.qemu_pid_file, &self.libvirt.name)
    }

    fn kill_qemu(&self) {
        let killed = self.find_qemu().and_then(|qemu| {
            tracing::warn!("QEMU does not end; killing PID {}", qemu.pid());
            qemu.signal(Signal::KILL)
        });
        if let Err(error) = killed {
            tracing::warn!(reason = %error, "Unable to kill QEMU");
        }
    }
}

/// Signals `begins` when libvirt is about to end QEMU (`VIR_DOMAIN_DESTROY_GRACEFUL`).
fn destroy(
    domain: Option<ChangeableDomain>,
    has_not_run: bool,
    begins: oneshot::Sender<()>,
) -> Result<(), LauncherError> {
    let Some(domain) = domain else { return Ok(()) };
    let result = domain.state().and_then(|state| match state {
        // Before the first run libvirt calls a domain shut off while it starts its QEMU.
        DomainState::NoState | DomainState::Shutoff(_) if !has_not_run => Ok(()),
        // D-vm-7 (docs/differences.md).
        _ => {
            // The caller may have given up.
            let _ = begins.send(());
            domain.destroy(true)
        }
    });
    match result {
        // The domain is already gone or shut off.
        Err(error) if error.is_no_domain() || error.is_operation_invalid() => Ok(()),
        result => Ok(result?),
    }
}
