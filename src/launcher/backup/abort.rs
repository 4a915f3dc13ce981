//! The end of a backup that is asked for.

use super::Backup;
use super::error::BackupError;
use crate::launcher::error::LauncherError;
use convert::backup::BackupId;
use libvirt::{JobOperation, JobType, WhichJob};

impl Backup {
    /// Asks libvirt to end the backup. The event that it has ended says what it has become.
    ///
    /// # Errors
    /// It is not in progress, or libvirt's.
    pub(super) async fn abort(&self, id: &BackupId) -> Result<(), LauncherError> {
        self.check_running(id)?;
        self.libvirt
            .request("aborting the backup", |domain| {
                let domain = domain.ok_or(LauncherError::NoDomain)?;
                let job = domain.job_state(WhichJob::Running)?;
                if (job.operation, job.job_type) != (JobOperation::Backup, JobType::Unbounded) {
                    return Err(BackupError::NoJob.into());
                }
                domain.abort_job()?;
                tracing::info!("backup job abort initiated successfully");
                Ok(())
            })
            .await
    }

    /// This backup runs.
    pub(super) fn check_running(&self, id: &BackupId) -> Result<(), BackupError> {
        let metadata = self.vm.metadata();
        let runs = metadata.backup().is_some_and(|last| {
            last.name == id.name
                && last.start_timestamp == Some(id.started)
                && last.end_timestamp.is_none()
        });
        runs.then_some(())
            .ok_or_else(|| BackupError::NotRunning(id.name.clone()))
    }
}
