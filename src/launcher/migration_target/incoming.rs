//! Follows an arriving domain until its migration ends, which virt-handler waits for.
//!
//! The guest runs a moment before libvirt's migration job is over; until then libvirt refuses
//! changes. libvirt has no event for the end of this job on the target, so the launcher polls it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::metadata_copy;
use crate::launcher::vm::metadata::Metadata;
use crate::launcher::vm::{Job, JobKind, PauseReason, Permission, Phase, Request, Snapshot};
use libvirt::ChangeableDomain;
use pod::Root;

/// Interval of polling the job.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Duration of one round of polling.
const POLL_TIME: Duration = Duration::from_secs(3);
/// Pauses between rounds. After the last round the migration counts as over, because virt-handler
/// would otherwise wait forever.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];

/// Interval of resuming a guest whose disk fails.
const RESUME_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the one domain that can arrive. Has no limit of its own: the supervisor ends a pod that
/// has no QEMU after `--qemu-timeout`.
// D-mig-21 (docs/differences.md).
pub(in crate::launcher) async fn follow(libvirt: Arc<LibvirtDomain>, root: Root) {
    let vm = &libvirt.vm;
    let mut state = vm.subscribe();
    let comes = |vm: &Snapshot| vm.jobs.contains(&JobKind::MigrationIn) || vm.phase.has_run();
    if state.wait_for(comes).await.is_err() {
        return;
    }
    let Some(job) = vm.take_adopted_job(JobKind::MigrationIn) else {
        // The guest was here before. What an earlier launcher has kept is over.
        return pod::forget_arrival(&root);
    };
    tracing::info!("The domain arrives from another node");
    let is_decided = |vm: &Snapshot| arrival(vm.phase) != Arrival::InProgress;
    let Ok(mut phase) = state.wait_for(is_decided).await.map(|vm| vm.phase) else {
        return;
    };
    if arrival(phase) == Arrival::Complete {
        wait_for_job_end(&libvirt).await;
        phase = resume_until_it_runs(&libvirt, &job).await;
    }
    // The job ends first: once virt-handler sees the end, its next calls are admitted.
    drop(job);
    if arrival(phase) == Arrival::Failed {
        tracing::error!(?phase, "The domain has not arrived");
    } else {
        vm.change_metadata(Metadata::migration_in_ended);
    }
    vm.refresh();
    // Until libvirt has a copy of the end, a later launcher follows the arrival again, by the file.
    if let Ok(Permission::Granted(permit)) = vm.permit(Request::CopyMetadata).await
        && metadata_copy::write(&libvirt, &permit).await.is_ok()
    {
        pod::forget_arrival(&root);
    }
}

/// Resumes an arrived guest until no failed disk keeps it paused: virt-handler sends a sync, which
/// would resume it, only after the migration, and ends a guest that does not run then. Returns the
/// phase.
// D-mig-36 (docs/differences.md).
async fn resume_until_it_runs(libvirt: &LibvirtDomain, job: &Job) -> Phase {
    loop {
        let phase = libvirt.vm.snapshot().phase;
        if phase != Phase::Paused(PauseReason::IoError) {
            return phase;
        }
        let resume = |domain: Option<ChangeableDomain>| match domain {
            Some(domain) => Ok(domain.resume()?),
            None => Err(LauncherError::NoDomain),
        };
        let (permit, what) = (job.permit(), "resuming the domain");
        if let Err(error) = libvirt.change(&permit, what, resume).await {
            tracing::warn!(reason = %os::logging::chain(&error), "The arrived guest does not resume");
        }
        // A disk that fails again pauses it at once.
        sleep(RESUME_INTERVAL).await;
    }
}

/// The state of an arriving domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launcher) enum Arrival {
    /// The source still has a part of the domain.
    InProgress,
    /// The domain is completely here, and the source has released it.
    Complete,
    /// The domain will not run here.
    Failed,
}

/// The state of the arrival, given the phase of a domain that was seen here.
pub(in crate::launcher) fn arrival(phase: Phase) -> Arrival {
    match phase {
        Phase::MigratingIn => Arrival::InProgress,
        Phase::Running | Phase::Paused(PauseReason::User | PauseReason::IoError) => {
            Arrival::Complete
        }
        _ => Arrival::Failed,
    }
}

/// Waits until libvirt's incoming migration is over.
// D-mig-26 (docs/differences.md).
async fn wait_for_job_end(libvirt: &LibvirtDomain) {
    for pause in PAUSES.map(Some).into_iter().chain([None]) {
        let end = os::time::deadline(POLL_TIME);
        while Instant::now() < end {
            if is_job_over(libvirt).await {
                return tracing::info!("The incoming migration is over");
            }
            sleep(POLL_INTERVAL).await;
        }
        if let Some(pause) = pause {
            tracing::info!("The incoming migration is still in progress");
            sleep(pause).await;
        }
    }
    tracing::warn!("The incoming migration is still in progress; it is reported as over");
}

/// Whether the job is over (`virDomainGetJobInfo`).
async fn is_job_over(libvirt: &LibvirtDomain) -> bool {
    let asked = libvirt.read("asking for the migration's job", |connection, name| {
        let domain = connection.lookup(name)?;
        Ok(match domain {
            Some(domain) => domain.is_migrating_in()?,
            None => false,
        })
    });
    match asked.await {
        Ok(migrating) => !migrating,
        Err(error) => {
            tracing::debug!(reason = %os::logging::chain(&error), "Could not read the migration's job");
            false
        }
    }
}
