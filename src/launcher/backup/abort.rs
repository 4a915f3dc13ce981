//! Aborts a backup on request.

use super::Backup;
use super::error::BackupError;
use crate::launcher::admit;
use crate::launcher::error::LauncherError;
use crate::launcher::vm::Request;
use convert::backup::BackupId;
use libvirt::{ChangeableDomain, JobOperation, JobType, WhichJob};

impl Backup {
    /// Asks libvirt to end the backup (`virDomainAbortJob`). libvirt's event tells the result.
    ///
    /// # Errors
    /// The backup is not in progress, or libvirt's error.
    pub(super) async fn abort(&self, id: &BackupId) -> Result<(), LauncherError> {
        self.check_running(id)?;
        let what = "aborting the backup";
        let abort = |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            let job = domain.job_state(WhichJob::Running)?;
            if (job.operation, job.job_type) != (JobOperation::Backup, JobType::Unbounded) {
                return Err(BackupError::NoJob.into());
            }
            domain.abort_job()?;
            tracing::info!("backup job abort initiated successfully");
            Ok(())
        };
        admit::change(&self.libvirt, Request::AbortBackup, what, abort).await
    }

    /// Fails unless this backup runs.
    pub(super) fn check_running(&self, id: &BackupId) -> Result<(), BackupError> {
        let metadata = self.libvirt.vm.metadata();
        let runs = metadata.backup().is_some_and(|last| {
            last.name == id.name
                && last.start_timestamp == Some(id.started)
                && last.end_timestamp.is_none()
        });
        runs.then_some(())
            .ok_or_else(|| BackupError::NotRunning(id.name.clone()))
    }
}
