//! The abort of a migration: requested by its metadata, carried out by its job.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::launcher::libvirt_domain::blocking;
use crate::launcher::vm::Vm;
use libvirt::{Domain, JobOperation, JobType, WhichJob};

/// How long libvirt has to take the abort; QEMU's monitor may be silent.
const ABORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Before libvirt is asked again for a job that it has not begun yet.
const JOB_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Marks the migration in progress as to be aborted, which its job then does. False if there is none.
pub(super) fn request(vm: &Vm) -> bool {
    vm.change_metadata(|metadata| metadata.migration_abort_requested())
}

/// Waits until the migration in progress is to be aborted.
pub(super) async fn requested(vm: &Vm) {
    let mut changes = vm.metadata_changes();
    let is_requested = |(): &()| vm.metadata().is_migration_aborting();
    // The sender lives in the VM, so this waits, and does not fail.
    let _ = changes.wait_for(is_requested).await;
}

/// Aborts libvirt's job, which may be about to begin. Whether libvirt has accepted it.
// D-mig-2 (docs/differences.md).
pub(super) async fn abort(domain: Domain) -> bool {
    let abort = async {
        loop {
            let domain = domain.clone();
            let aborted = blocking("aborting the migration", move || {
                let job = domain.job_state(WhichJob::Running)?;
                if (job.operation, job.job_type) != (JobOperation::MigrationOut, JobType::Unbounded)
                {
                    return Ok(false);
                }
                domain.abort_job()?;
                Ok(true)
            });
            match aborted.await {
                Ok(true) => return Ok(()),
                Ok(false) => sleep(JOB_RETRY_DELAY).await,
                Err(error) => return Err(error),
            }
        }
    };
    match timeout(ABORT_TIMEOUT, abort).await {
        Ok(Ok(())) => {
            tracing::info!("Live migration abort succeeded");
            true
        }
        Ok(Err(error)) => {
            tracing::error!(reason = %os::logging::chain(&error), "failed to cancel migration");
            false
        }
        Err(_) => {
            tracing::error!("migration abort timed out waiting for libvirt");
            false
        }
    }
}
