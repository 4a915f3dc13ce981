//! Aborts a migration: its metadata request the abort, its job carries it out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::launcher::libvirt_domain::blocking;
use crate::launcher::vm::{Job, JobKind, Vm};
use libvirt::{ChangeableDomain, JobOperation, JobType, WhichJob};
use os::failpoints;

/// Time limit for libvirt to accept the abort, as QEMU's monitor may be silent.
const ABORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before libvirt is asked again about a job that it has not started yet.
const JOB_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Requests the abort of the migration in progress. Returns false if there is none.
pub(super) fn request(vm: &Vm) -> bool {
    vm.change_metadata(|metadata| metadata.migration_abort_requested())
}

/// Waits for a request to abort the migration in progress.
pub(super) async fn wait_for_request(vm: &Vm) {
    let mut changes = vm.metadata_changes();
    let is_requested = |(): &()| vm.metadata().is_migration_aborting();
    // Cannot fail: the sender lives in the VM.
    let _ = changes.wait_for(is_requested).await;
}

/// Aborts libvirt's job (`virDomainAbortJob`), which may not have started yet. Returns whether
/// libvirt has accepted; it never does in post-copy. A call to libvirt keeps `job` when this is
/// dropped: [`end`] waits for it.
// D-mig-2 (docs/differences.md).
pub(super) async fn abort(domain: ChangeableDomain, job: Arc<Job>) -> bool {
    let abort = async {
        loop {
            let (domain, job) = (domain.clone(), job.clone());
            let aborted = blocking("aborting the migration", move || {
                let _job = job;
                let seen = domain.job_state(WhichJob::Running)?;
                if (seen.operation, seen.job_type)
                    != (JobOperation::MigrationOut, JobType::Unbounded)
                {
                    return Ok(false);
                }
                failpoints::hit("migration.aborting");
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

/// Ends the migration's job, and waits until no call to libvirt can abort another migration: each
/// holds the job. After [`ABORT_TIMEOUT`] virt-handler hears of the migration's end all the
/// same, and what needs the job to be over waits until that call has returned.
pub(super) async fn end(vm: &Vm, job: Arc<Job>) {
    drop(job);
    let mut state = vm.subscribe();
    let ended = state.wait_for(|vm| !vm.jobs.contains(&JobKind::MigrationOut));
    let _ = timeout(ABORT_TIMEOUT, ended).await;
}
