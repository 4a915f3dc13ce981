//! Resumes a guest that a full target (push backup) or scratch file (pull backup) has paused.

use std::time::Duration;

use tokio::time::timeout;

use super::Backup;
use crate::launcher::admit;
use crate::launcher::vm::{PauseReason, Phase, Request};
use libvirt::{ChangeableDomain, DomainState, PausedReason};

/// How long after the backup's end QEMU may still pause the guest.
const PAUSE_DELAY: Duration = Duration::from_secs(5);

impl Backup {
    /// During a backup, QEMU copies a block to the target before the guest overwrites it. If that
    /// fails, the guest's write fails and QEMU pauses the guest with an I/O error. After the backup
    /// QEMU repeats the write, which succeeds.
    // D-backup-8 (docs/differences.md).
    pub(super) fn resume_guest(&self) {
        let (libvirt, mut state) = (self.libvirt.clone(), self.libvirt.vm.subscribe());
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
            let resumed = admit::change(&libvirt, Request::ResumeAfterJob, what, resume);
            if let Err(error) = resumed.await {
                tracing::error!(reason = %os::logging::chain(&error), "The guest stays paused after its backup");
            }
        });
    }
}
