//! Resumes a guest that was paused because a backup's target, or the file that keeps a pull's old
//! blocks, was full.

use std::time::Duration;

use tokio::time::timeout;

use super::Backup;
use crate::launcher::admit;
use crate::launcher::vm::{PauseReason, Phase, Request};
use libvirt::{ChangeableDomain, DomainState, PausedReason};

/// QEMU may pause the guest until shortly after the backup has ended.
const PAUSE_DELAY: Duration = Duration::from_secs(5);

impl Backup {
    /// Before the guest overwrites a block during a backup, QEMU copies it to the target. If that
    /// fails, the guest's write fails and the guest is paused with an I/O error. After the backup
    /// the write is repeated and succeeds.
    // D-backup-8 (docs/differences.md).
    pub(super) fn resume_guest(&self) {
        let (libvirt, vm, mut state) = (self.libvirt.clone(), self.vm.clone(), self.vm.subscribe());
        tokio::spawn(async move {
            let is_paused = state.wait_for(|vm| vm.phase == Phase::Paused(PauseReason::IoError));
            if !matches!(timeout(PAUSE_DELAY, is_paused).await, Ok(Ok(_))) {
                return;
            }
            let resume = |domain: Option<ChangeableDomain>| {
                let Some(domain) = domain else { return Ok(()) };
                if domain.state()? == DomainState::Paused(PausedReason::IoError) {
                    tracing::info!("Resuming the guest, which a full backup target has paused");
                    domain.resume()?;
                }
                Ok(())
            };
            let what = "resuming the guest";
            let resumed = admit::change(&libvirt, &vm, Request::ResumeAfterJob, what, resume);
            if let Err(error) = resumed.await {
                tracing::error!(reason = %os::logging::chain(&error), "The guest stays paused after its backup");
            }
        });
    }
}
