//! Admits requests by phase and running jobs, and gives the reason for a refusal. Pure: one table
//! for requests, one for jobs.
//!
//! | Request | no domain | starting | runs, paused, stopping | arrives | leaves | ended |
//! |---|---|---|---|---|---|---|
//! | Sync | in turn | in turn (joins the start) | in turn | refused | if it changes nothing | in turn |
//! | Pause | refused | in turn | in turn | refused | in turn | in turn |
//! | Unpause | refused | in turn | in turn | refused | refused | in turn |
//! | Resize | refused | in turn | in turn | refused | refused | refused |
//! | Reset, SoftReboot | refused | at once | at once | refused | refused | at once |
//! | Shutdown | nothing to do | at once | at once | at once | at once | at once |
//! | Kill | at once | at once | at once | at once | at once | at once |
//! | Delete | in turn | in turn | in turn | refused | refused | in turn |
//! | PrepareTarget | in turn | refused | nothing to do | nothing to do | nothing to do | refused |
//! | RedefineCheckpoint, PodCleanup | in turn | in turn | in turn | in turn | in turn | in turn |
//! | AbortBackup, ResumeAfterJob, InjectSecret, PodShutdown | at once | at once | at once | at once | at once | at once |
//! | Finalize | nothing to do | in turn | in turn | refused | refused | nothing to do |
//! | CopyMetadata | refused | refused | at once | refused | refused | at once |
//!
//! "No domain" is "arrives" for a sync if one is expected from another node: libvirt may have it a moment before it is seen here.
//! "In turn" means one change of the domain after the other. Kill is never refused and never waits.
//! A guest whose post-copy migration has failed can only be killed, shut down and deleted.

use super::job::JobKind;
use super::phase::{PauseReason, Phase};

/// A request about the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Change the domain to match the VMI.
    Sync,
    /// Stop the vCPUs.
    Pause,
    /// Resume the vCPUs.
    Unpause,
    /// Plug CPUs or memory in or out.
    Resize,
    /// Press the reset button.
    Reset,
    /// Ask the guest to reboot.
    SoftReboot,
    /// Ask the guest to shut down.
    Shutdown,
    /// Force the guest off.
    Kill,
    /// Remove the definition.
    Delete,
    /// Prepare the pod for the domain's arrival from another node.
    PrepareTarget,
    /// Finish the migration in the arrived guest.
    Finalize,
    /// Redefine a checkpoint that libvirt has lost.
    RedefineCheckpoint,
    /// End the backup that is in progress.
    AbortBackup,
    /// Write the metadata into the domain's XML.
    CopyMetadata,
    /// Let the guest run on that a job has stopped.
    ResumeAfterJob,
    /// Give an encrypted guest its secret.
    InjectSecret,
    /// Ask the guest to shut down, as its pod ends.
    PodShutdown,
    /// Remove the definition, as its pod ends.
    PodCleanup,
}

impl Request {
    /// Whether it can be admitted before libvirt has shown what there is: it is admitted in every phase.
    pub fn is_always_admitted(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::RedefineCheckpoint
                | Self::AbortBackup
                | Self::ResumeAfterJob
                | Self::InjectSecret
                | Self::PodShutdown
                | Self::PodCleanup
        )
    }
}

/// Where the VM is, as far as admission asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub phase: Phase,
    /// The domain comes from another node, and libvirt has not shown it yet.
    pub expects_arrival: bool,
    /// It is not known to be all here, or a migration to another node is in progress.
    pub migrates: bool,
    /// The pod ends.
    pub refuses_starts: bool,
}

impl From<Phase> for Standing {
    fn from(phase: Phase) -> Self {
        Self {
            phase,
            expects_arrival: false,
            migrates: false,
            refuses_starts: false,
        }
    }
}

/// How an admitted request runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Immediately, whatever else is in progress.
    AtOnce,
    /// After the changes admitted before it.
    InTurn,
    /// In turn, and succeeds only if nothing has to change.
    IfUnchanged,
    /// Not at all: the domain is already in the requested state.
    NothingToDo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No domain exists.
    #[error("there is no domain")]
    NoDomain,
    /// The domain is migrating.
    #[error("the domain is migrating; send it again when the migration has ended")]
    Migrating,
    /// A post-copy migration has failed: neither node has all of the guest's memory.
    #[error(
        "the guest cannot run any more: its post-copy migration has failed, and its memory is on two nodes"
    )]
    PostcopyFailed,
    /// The pod's one domain has ended.
    #[error("the domain has already run and ended in this pod; a migration needs a new pod")]
    HasEnded,
    /// The pod ends.
    #[error("the virt-launcher pod is ending; no domain is started any more")]
    Ending,
    /// Another running job excludes it.
    #[error("{0} is in progress; send it again when that has ended")]
    Job(JobKind),
}

const POSTCOPY_FAILED: Phase = Phase::Paused(PauseReason::PostcopyFailed);

/// Whether and how `request` runs.
pub fn admit(standing: impl Into<Standing>, request: Request) -> Result<Admission, Refusal> {
    use Request as R;
    let Standing {
        phase,
        expects_arrival,
        migrates,
        ..
    } = standing.into();
    let migrating = matches!(phase, Phase::MigratingIn | Phase::MigratingOut);
    let no_domain = matches!(phase, Phase::Absent | Phase::Gone);
    match request {
        R::Kill | R::AbortBackup | R::ResumeAfterJob | R::InjectSecret | R::PodShutdown => {
            Ok(Admission::AtOnce)
        }
        R::RedefineCheckpoint | R::PodCleanup => Ok(Admission::InTurn),
        R::CopyMetadata if !phase.is_visible() => Err(Refusal::NoDomain),
        R::CopyMetadata if migrates => Err(Refusal::Migrating),
        R::CopyMetadata => Ok(Admission::AtOnce),
        R::Sync if expects_arrival => Err(Refusal::Migrating),
        // D-mig-30 (docs/differences.md).
        R::Sync | R::Pause | R::Unpause | R::Resize | R::Reset | R::SoftReboot | R::Finalize
            if phase == POSTCOPY_FAILED =>
        {
            Err(Refusal::PostcopyFailed)
        }
        R::Shutdown if no_domain => Ok(Admission::NothingToDo),
        R::Shutdown => Ok(Admission::AtOnce),
        R::PrepareTarget => match phase {
            Phase::Absent => Ok(Admission::InTurn),
            Phase::Starting => Err(Refusal::Job(JobKind::Start)),
            Phase::Ended | Phase::Gone => Err(Refusal::HasEnded),
            // The prepared files are in use: the domain is here or arriving.
            _ => Ok(Admission::NothingToDo),
        },
        R::Sync if phase == Phase::MigratingOut => Ok(Admission::IfUnchanged),
        // D-mig-31 (docs/differences.md).
        R::Pause if phase == Phase::MigratingIn => Err(Refusal::Migrating),
        R::Unpause if migrating => Err(Refusal::Migrating),
        R::Sync | R::Delete | R::Reset | R::SoftReboot | R::Resize | R::Finalize if migrating => {
            Err(Refusal::Migrating)
        }
        R::Finalize if no_domain || phase == Phase::Ended => Ok(Admission::NothingToDo),
        R::Resize if no_domain || phase == Phase::Ended => Err(Refusal::NoDomain),
        R::Resize => Ok(Admission::InTurn),
        R::Sync | R::Delete | R::Finalize => Ok(Admission::InTurn),
        R::Pause | R::Unpause | R::Reset | R::SoftReboot if no_domain => Err(Refusal::NoDomain),
        R::Pause | R::Unpause => Ok(Admission::InTurn),
        R::Reset | R::SoftReboot => Ok(Admission::AtOnce),
    }
}

/// Whether `job` may start beside the running ones.
pub fn admit_job(
    standing: impl Into<Standing>,
    running: &[JobKind],
    job: JobKind,
) -> Result<(), Refusal> {
    let standing = standing.into();
    let phase = standing.phase;
    if job == JobKind::Start && standing.refuses_starts {
        return Err(Refusal::Ending);
    }
    if let Some(other) = running.iter().find(|other| !job.may_run_beside(**other)) {
        return Err(Refusal::Job(*other));
    }
    match job {
        JobKind::Start | JobKind::MigrationIn => Ok(()),
        _ if !phase.is_visible() || phase == Phase::Ended => Err(Refusal::NoDomain),
        _ if matches!(phase, Phase::MigratingIn | Phase::MigratingOut) => Err(Refusal::Migrating),
        _ if phase == POSTCOPY_FAILED => Err(Refusal::PostcopyFailed),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase::PauseReason;
    use super::*;

    const PHASES: [Phase; 11] = [
        Phase::Absent,
        Phase::Starting,
        Phase::Running,
        Phase::Paused(PauseReason::User),
        Phase::Paused(PauseReason::IoError),
        Phase::Paused(PauseReason::PostcopyFailed),
        Phase::MigratingIn,
        Phase::MigratingOut,
        Phase::Stopping,
        Phase::Ended,
        Phase::Gone,
    ];

    #[test]
    fn a_kill_is_admitted_in_every_phase() {
        for phase in PHASES {
            assert_eq!(
                admit(phase, Request::Kill),
                Ok(Admission::AtOnce),
                "{phase:?}"
            );
        }
    }

    #[test]
    fn a_shutdown_never_waits_for_its_turn() {
        for phase in PHASES {
            let admitted = admit(phase, Request::Shutdown);
            assert!(
                admitted.is_ok_and(|how| how != Admission::InTurn),
                "{phase:?}"
            );
        }
    }

    #[test]
    fn a_domain_between_two_nodes_is_not_changed() {
        for phase in [Phase::MigratingIn, Phase::MigratingOut] {
            for request in [Request::Delete, Request::Reset, Request::Unpause] {
                assert_eq!(
                    admit(phase, request),
                    Err(Refusal::Migrating),
                    "{request:?}"
                );
            }
        }
    }

    #[test]
    fn a_sync_of_a_domain_that_leaves_succeeds_if_it_changes_nothing() {
        let sync = |phase| admit(phase, Request::Sync);
        assert_eq!(sync(Phase::MigratingOut), Ok(Admission::IfUnchanged));
        assert_eq!(sync(Phase::MigratingIn), Err(Refusal::Migrating));
    }

    #[test]
    fn a_guest_whose_post_copy_has_failed_can_only_end() {
        for request in [Request::Kill, Request::Shutdown, Request::Delete] {
            assert!(admit(POSTCOPY_FAILED, request).is_ok(), "{request:?}");
        }
        for request in [Request::Sync, Request::Unpause, Request::Reset] {
            let refused = admit(POSTCOPY_FAILED, request);
            assert_eq!(refused, Err(Refusal::PostcopyFailed), "{request:?}");
        }
    }

    #[test]
    fn a_pod_is_prepared_for_one_domain_until_that_is_there() {
        let prepare = |phase| admit(phase, Request::PrepareTarget);
        assert_eq!(prepare(Phase::Absent), Ok(Admission::InTurn));
        assert_eq!(prepare(Phase::Starting), Err(Refusal::Job(JobKind::Start)));
        for phase in [Phase::MigratingIn, Phase::Running, Phase::MigratingOut] {
            assert_eq!(prepare(phase), Ok(Admission::NothingToDo), "{phase:?}");
        }
        for phase in [Phase::Ended, Phase::Gone] {
            assert_eq!(prepare(phase), Err(Refusal::HasEnded), "{phase:?}");
        }
    }

    #[test]
    fn a_migration_is_finalized_when_it_is_over_as_often_as_virt_handler_likes() {
        let finalize = |phase| admit(phase, Request::Finalize);
        assert_eq!(finalize(Phase::Running), Ok(Admission::InTurn));
        assert_eq!(finalize(Phase::MigratingIn), Err(Refusal::Migrating));
        for phase in [Phase::Absent, Phase::Ended, Phase::Gone] {
            assert_eq!(finalize(phase), Ok(Admission::NothingToDo), "{phase:?}");
        }
    }

    #[test]
    fn without_a_domain_nothing_can_be_paused_or_reset() {
        for phase in [Phase::Absent, Phase::Gone] {
            for request in [
                Request::Pause,
                Request::Unpause,
                Request::Reset,
                Request::SoftReboot,
            ] {
                assert_eq!(admit(phase, request), Err(Refusal::NoDomain), "{request:?}");
            }
        }
    }

    #[test]
    fn jobs_exclude_each_other_but_for_hotplug_beside_a_backup() {
        for new in JobKind::ALL {
            for running in JobKind::ALL {
                let admitted = admit_job(Phase::Running, &[running], new);
                let pair = [new, running];
                let together =
                    pair.contains(&JobKind::Backup) && pair.contains(&JobKind::HostDeviceHotplug);
                assert_eq!(admitted.is_ok(), together, "{new:?} beside {running:?}");
            }
        }
    }

    #[test]
    fn a_job_needs_a_domain_that_stays_here() {
        for job in [JobKind::Backup, JobKind::MemoryDump, JobKind::MigrationOut] {
            for (phase, expected) in [
                (Phase::Running, Ok(())),
                (Phase::Paused(PauseReason::User), Ok(())),
                (Phase::Absent, Err(Refusal::NoDomain)),
                (Phase::Ended, Err(Refusal::NoDomain)),
                (Phase::Gone, Err(Refusal::NoDomain)),
                (Phase::MigratingIn, Err(Refusal::Migrating)),
                (POSTCOPY_FAILED, Err(Refusal::PostcopyFailed)),
            ] {
                assert_eq!(admit_job(phase, &[], job), expected, "{job:?} in {phase:?}");
            }
        }
    }
}
