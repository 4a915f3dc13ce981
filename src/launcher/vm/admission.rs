//! Which requests and jobs are admitted in which phase, and the errors of refused ones. Pure.
//!
//! libvirt's calls that change the domain ask for a [`Permit`](super::Permit): only an admitted
//! request, or an admitted job, has one.

use super::job::JobKind;
use super::permit::Permit;
use super::phase::{PauseReason, Phase};

/// A change of the domain, by a call of virt-handler or by the launcher itself.
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
    /// Write the metadata into the domain's XML.
    CopyMetadata,
    /// Redefine a checkpoint that libvirt has lost.
    RedefineCheckpoint,
    /// End the backup that is in progress.
    AbortBackup,
    /// Resume a guest that was paused during a job.
    ResumeAfterJob,
    /// Give an encrypted guest its secret.
    InjectSecret,
    /// Ask the guest to shut down, as its pod ends.
    PodShutdown,
    /// Remove the definition, as its pod ends.
    PodCleanup,
}

/// The part of the VM's state that decides about admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub phase: Phase,
    /// A migration is in progress, or libvirt's own part of one.
    pub migrates: bool,
    /// The pod ends.
    pub is_ending: bool,
}

/// How an admitted request runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request runs at once, beside changes and jobs.
    AtOnce,
    /// The request waits for the changes admitted before it.
    InTurn,
    /// The request waits too, and succeeds only if nothing has to change.
    CompareOnly,
    /// The request changes nothing: the domain is already in the requested state.
    AlreadySo,
    /// Undecided until libvirt has been asked for the domain.
    AfterLook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no domain")]
    NoDomain,
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

/// The answer to an admitted request.
pub enum Permission {
    Granted(Permit),
    /// The request succeeds only if nothing has to change.
    CompareOnly,
    /// The domain is already in the requested state.
    AlreadySo,
}

impl Permission {
    /// The permit, for a request that cannot compare; `None` if there is nothing to change.
    pub fn into_permit(self) -> Result<Option<Permit>, Refusal> {
        match self {
            Self::Granted(permit) => Ok(Some(permit)),
            Self::CompareOnly => Err(Refusal::Migrating),
            Self::AlreadySo => Ok(None),
        }
    }
}

type Answer = Result<Admission, Refusal>;

const NOW: Answer = Ok(Admission::AtOnce);
const TURN: Answer = Ok(Admission::InTurn);
const SAME: Answer = Ok(Admission::CompareOnly);
const DONE: Answer = Ok(Admission::AlreadySo);
const LOOK: Answer = Ok(Admission::AfterLook);
const NONE: Answer = Err(Refusal::NoDomain);
const MOVE: Answer = Err(Refusal::Migrating);
const TORN: Answer = Err(Refusal::PostcopyFailed);
const OVER: Answer = Err(Refusal::HasEnded);
const BUSY: Answer = Err(Refusal::Job(JobKind::Start));

/// The table: the answer in each phase. `undecided`: a migration from here has ended, and only
/// libvirt knows whether the guest is still here. `torn`: a post-copy has failed. Such a guest can
/// be killed, shut down and deleted. Other work on it can end, and none can begin.
// D-mig-30, D-mig-31 (docs/differences.md).
#[rustfmt::skip]
fn row(request: Request) -> [Answer; 11] {
    use Request as R;
    match request {
        // unknown, absent, expected, starting, runs, arrives, leaves, undecided, torn, ended, gone
        R::Sync          => [LOOK, TURN, MOVE, TURN, TURN, MOVE, SAME, LOOK, TORN, TURN, TURN],
        R::Pause         => [LOOK, NONE, NONE, TURN, TURN, MOVE, TURN, TURN, TORN, TURN, NONE],
        R::Unpause       => [LOOK, NONE, NONE, TURN, TURN, MOVE, MOVE, LOOK, TORN, TURN, NONE],
        R::Resize        => [LOOK, NONE, NONE, TURN, TURN, MOVE, MOVE, LOOK, TORN, NONE, NONE],
        R::Reset | R::SoftReboot
                         => [LOOK, NONE, NONE, NOW,  NOW,  MOVE, MOVE, LOOK, TORN, NOW,  NONE],
        R::Shutdown      => [LOOK, DONE, DONE, NOW,  NOW,  NOW,  NOW,  NOW,  NOW,  NOW,  DONE],
        R::Delete        => [LOOK, TURN, TURN, TURN, TURN, MOVE, MOVE, LOOK, TURN, TURN, TURN],
        R::PrepareTarget => [LOOK, TURN, TURN, BUSY, DONE, DONE, DONE, DONE, DONE, OVER, OVER],
        R::Finalize      => [LOOK, DONE, MOVE, TURN, TURN, MOVE, MOVE, LOOK, TORN, DONE, DONE],
        R::CopyMetadata  => [NONE, NONE, NONE, NONE, NOW,  NOW,  NOW,  NOW,  NOW,  NOW,  NONE],
        R::RedefineCheckpoint | R::PodCleanup
                         => [TURN; 11],
        R::Kill | R::AbortBackup | R::ResumeAfterJob | R::InjectSecret | R::PodShutdown
                         => [NOW; 11],
    }
}

const POSTCOPY_FAILED: Phase = Phase::Paused(PauseReason::PostcopyFailed);

/// The answer of the table.
///
/// # Errors
/// The refusal.
pub fn answer(standing: Standing, request: Request) -> Answer {
    #[rustfmt::skip]
    let [unknown, absent, expected, starting, runs, arrives, leaves, undecided, torn, ended, gone]
        = row(request);
    match standing.phase {
        // Only the job tells when libvirt's migration is over. The phase may change later, and
        // nothing would request the copy again.
        phase if phase.is_visible() && standing.migrates && request == Request::CopyMetadata => {
            MOVE
        }
        POSTCOPY_FAILED => torn,
        Phase::Unknown => unknown,
        Phase::Absent | Phase::StartFailed => absent,
        Phase::Expected => expected,
        Phase::Preparing | Phase::Starting => starting,
        Phase::Running | Phase::Paused(_) | Phase::Stopping => runs,
        Phase::MigratingIn => arrives,
        Phase::MigratingOut if standing.migrates => leaves,
        Phase::MigratingOut => undecided,
        Phase::Ended => ended,
        Phase::Gone => gone,
    }
}

/// Whether `job` may start beside the running ones.
///
/// # Errors
/// Why not.
pub fn admit_job(standing: Standing, running: &[JobKind], job: JobKind) -> Result<(), Refusal> {
    let phase = standing.phase;
    if job == JobKind::Start && standing.is_ending {
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

    const PHASES: [Phase; 15] = [
        Phase::Unknown,
        Phase::Absent,
        Phase::Expected,
        Phase::StartFailed,
        Phase::Preparing,
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

    fn admit(phase: Phase, request: Request) -> Answer {
        super::answer(standing(phase), request)
    }

    fn admit_job(phase: Phase, running: &[JobKind], job: JobKind) -> Result<(), Refusal> {
        super::admit_job(standing(phase), running, job)
    }

    fn standing(phase: Phase) -> Standing {
        Standing {
            phase,
            migrates: matches!(phase, Phase::MigratingIn | Phase::MigratingOut),
            is_ending: false,
        }
    }

    #[test]
    fn a_request_that_cannot_compare_is_not_answered_as_done() {
        let refused = Permission::CompareOnly.into_permit();
        assert!(matches!(refused, Err(Refusal::Migrating)));
        assert!(matches!(Permission::AlreadySo.into_permit(), Ok(None)));
    }

    #[test]
    fn a_kill_is_admitted_in_every_phase() {
        for phase in PHASES {
            let admitted = admit(phase, Request::Kill);
            assert_eq!(admitted, Ok(Admission::AtOnce), "{phase:?}");
        }
    }

    #[test]
    fn a_shutdown_never_waits_for_its_turn() {
        for phase in PHASES {
            let admitted = admit(phase, Request::Shutdown).unwrap();
            assert_ne!(admitted, Admission::InTurn, "{phase:?}");
        }
    }

    #[test]
    fn a_domain_between_two_nodes_is_not_changed() {
        for phase in [Phase::MigratingIn, Phase::MigratingOut] {
            for request in [Request::Delete, Request::Reset, Request::Unpause] {
                let admitted = admit(phase, request);
                assert_eq!(admitted, Err(Refusal::Migrating), "{request:?}");
            }
        }
    }

    #[test]
    fn no_domain_is_made_where_one_is_expected() {
        let sync = admit(Phase::Expected, Request::Sync);
        assert_eq!(sync, Err(Refusal::Migrating));
        let metadata = |phase, migrates| {
            let standing = Standing {
                migrates,
                ..standing(phase)
            };
            super::answer(standing, Request::CopyMetadata)
        };
        assert_eq!(metadata(Phase::Running, false), Ok(Admission::AtOnce));
        assert_eq!(metadata(Phase::Running, true), Err(Refusal::Migrating));
        assert_eq!(metadata(Phase::Gone, true), Err(Refusal::NoDomain));
    }

    #[test]
    fn no_domain_is_started_when_the_pod_ends() {
        let standing = Standing {
            is_ending: true,
            ..standing(Phase::Absent)
        };
        let start = super::admit_job(standing, &[], JobKind::Start);
        assert_eq!(start, Err(Refusal::Ending));
    }

    #[test]
    fn a_sync_of_a_domain_that_leaves_succeeds_if_it_changes_nothing() {
        let sync = |phase| admit(phase, Request::Sync);
        assert_eq!(sync(Phase::MigratingOut), Ok(Admission::CompareOnly));
        assert_eq!(sync(Phase::MigratingIn), Err(Refusal::Migrating));
    }

    #[test]
    fn whether_a_guest_is_still_here_after_its_migration_only_libvirt_knows() {
        let answer = |request| {
            let standing = Standing {
                migrates: false,
                ..standing(Phase::MigratingOut)
            };
            super::answer(standing, request)
        };
        for request in [Request::Sync, Request::Unpause, Request::Delete] {
            assert_eq!(answer(request), Ok(Admission::AfterLook), "{request:?}");
        }
        assert_eq!(answer(Request::Shutdown), Ok(Admission::AtOnce));
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
        for phase in [Phase::Absent, Phase::Expected] {
            assert_eq!(prepare(phase), Ok(Admission::InTurn), "{phase:?}");
        }
        assert_eq!(prepare(Phase::Starting), Err(Refusal::Job(JobKind::Start)));
        for phase in [Phase::MigratingIn, Phase::Running, Phase::MigratingOut] {
            assert_eq!(prepare(phase), Ok(Admission::AlreadySo), "{phase:?}");
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
            assert_eq!(finalize(phase), Ok(Admission::AlreadySo), "{phase:?}");
        }
    }

    #[test]
    fn without_a_domain_nothing_can_be_paused_or_reset() {
        for phase in [
            Phase::Absent,
            Phase::Expected,
            Phase::StartFailed,
            Phase::Gone,
        ] {
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
                (Phase::Unknown, Err(Refusal::NoDomain)),
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
