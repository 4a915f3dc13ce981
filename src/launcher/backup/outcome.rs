//! Whether a backup runs, never began, succeeded or failed, by what libvirt and its event say of
//! the job. Pure. The launcher deletes no checkpoint.

use super::Stage;
use crate::launcher::vm::metadata::Outcome;
use convert::backup::{BackupId, RequestedMode};
use domain::metadata::BackupMetadata;
use libvirt::{JobOperation, JobState, JobType};

/// QEMU's message for a cancelled (aborted) job. A pull backup always ends with it.
const CANCELED: &str = "Operation canceled";

/// libvirt's report on backups.
#[derive(Default)]
pub(super) struct Seen {
    /// A backup is in progress.
    pub is_running: bool,
    /// QEMU has block jobs for the backup.
    pub has_jobs: bool,
    /// How the last backup ended, if libvirt still knows.
    pub ended: Option<JobEnd>,
    /// The VM still has a QEMU process.
    pub vm_runs: bool,
    /// libvirt has closed the images of an ended backup. It reports the end before it closes them,
    /// and a QEMU killed in between has not written all of the images' metadata.
    pub is_closed: bool,
}

/// What libvirt's state says of the backup that the metadata have in progress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Runs,
    /// libvirt waits for jobs that QEMU has ended.
    RunsWithoutJobs,
    /// libvirt has not begun it.
    NeverBegan(BackupId),
    Ended(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobEnd {
    job_type: JobType,
    message: Option<String>,
}

impl Outcome {
    /// The result of a backup whose images were not seen closed.
    // D-backup-9 (docs/differences.md).
    pub fn not_closed(self) -> Self {
        if self.failed {
            return self;
        }
        failed(
            "the virtual machine or libvirt ended before the backup's images were closed: make another one",
            None,
        )
    }
}

impl JobEnd {
    /// Reads the event, which says less than the statistics.
    pub fn of_event(success: Option<bool>, message: Option<String>) -> Self {
        let is_cancelled = message.as_deref().is_none_or(|it| it == CANCELED);
        let job_type = match success {
            Some(true) => JobType::Completed,
            _ if is_cancelled => JobType::Cancelled,
            _ => JobType::Failed,
        };
        Self { job_type, message }
    }

    /// Reads the statistics of the last job, if that was a backup.
    pub fn of_stats(stats: &JobState) -> Option<Self> {
        (stats.operation == JobOperation::Backup).then(|| Self {
            job_type: stats.job_type,
            message: stats.error_message().map(str::to_owned),
        })
    }

    /// Adds the message of `other` if there is none.
    pub fn or_message(self, other: Option<&Self>) -> Self {
        let message = self
            .message
            .or_else(|| other.and_then(|other| other.message.clone()));
        Self { message, ..self }
    }
}

/// What has become of the backup. `by_event` is the end that libvirt's event has reported, if any.
pub(super) fn verdict(
    backup: &BackupMetadata,
    stage: Option<Stage>,
    by_event: Option<JobEnd>,
    seen: Seen,
) -> Verdict {
    match by_event {
        None if seen.is_running && seen.has_jobs => return Verdict::Runs,
        None if seen.is_running => return Verdict::RunsWithoutJobs,
        _ => {}
    }
    let end = match seen.ended {
        Some(end) => Some(end.or_message(by_event.as_ref())),
        None => by_event,
    };
    if end.is_none()
        && stage == Some(Stage::Uncertain)
        && let Some(id) = id_of(backup)
    {
        return Verdict::NeverBegan(id);
    }
    let mode = mode_of(backup);
    let outcome = match stage {
        Some(Stage::Lost) => lost(),
        _ => outcome(mode, end.as_ref(), seen.vm_runs),
    };
    Verdict::Ended(if seen.is_closed || mode == RequestedMode::Pull {
        outcome
    } else {
        outcome.not_closed()
    })
}

pub(super) fn id_of(backup: &BackupMetadata) -> Option<BackupId> {
    Some(BackupId {
        name: backup.name.clone(),
        started: backup.start_timestamp?,
    })
}

fn mode_of(backup: &BackupMetadata) -> RequestedMode {
    if backup.mode == RequestedMode::Pull.as_str() {
        RequestedMode::Pull
    } else {
        RequestedMode::Push
    }
}

/// The result of a backup: an abort fails a push backup, not a pull backup. `end` is `None` if
/// nobody saw it end; `vm_runs`: the VM still runs.
// D-backup-4, D-backup-5 (docs/differences.md).
fn outcome(mode: RequestedMode, end: Option<&JobEnd>, vm_runs: bool) -> Outcome {
    let Some(end) = end else {
        return failed(
            "it is not known how the backup ended: make another one",
            None,
        );
    };
    // Every pull backup ends with this message, so there it is no remark.
    let is_remark = |said: &&str| mode != RequestedMode::Pull || *said != CANCELED;
    let was_aborted = end.message.as_deref() == Some(CANCELED);
    let said = end.message.as_deref().filter(is_remark);
    match (end.job_type, mode) {
        (JobType::Completed, _) => succeeded(said),
        (JobType::Cancelled, RequestedMode::Push) => failed("backup aborted", said),
        (JobType::Cancelled, RequestedMode::Pull) if vm_runs || was_aborted => succeeded(said),
        (JobType::Cancelled, RequestedMode::Pull) => failed(
            "the virtual machine ended before the backup was finished",
            said,
        ),
        (JobType::Failed, _) => Outcome {
            failed: true,
            message: said.unwrap_or("unknown failure reason").to_owned(),
        },
        (other, _) => failed(
            &format!("unexpected end of the backup's job: {other:?}"),
            said,
        ),
    }
}

/// The result of a backup that libvirt waited for after QEMU had ended it.
fn lost() -> Outcome {
    failed(
        "libvirt was restarted, and has lost track of the backup",
        None,
    )
}

fn succeeded(remark: Option<&str>) -> Outcome {
    Outcome {
        failed: false,
        message: remark.unwrap_or_default().to_owned(),
    }
}

fn failed(why: &str, said: Option<&str>) -> Outcome {
    Outcome {
        failed: true,
        message: match said {
            Some(said) => format!("{why}: {said}"),
            None => why.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::metadata::Time;

    fn end(job_type: JobType, message: Option<&str>) -> JobEnd {
        JobEnd {
            job_type,
            message: message.map(str::to_owned),
        }
    }

    /// Returns (failed, message).
    fn after(mode: RequestedMode, end: &JobEnd, vm_runs: bool) -> (bool, String) {
        let outcome = outcome(mode, Some(end), vm_runs);
        (outcome.failed, outcome.message)
    }

    fn backup(mode: RequestedMode) -> BackupMetadata {
        BackupMetadata {
            name: "b".to_owned(),
            mode: mode.as_str().to_owned(),
            start_timestamp: Some(Time::now()),
            ..BackupMetadata::default()
        }
    }

    #[test]
    fn libvirts_state_decides_until_an_event_has_told_the_end() {
        let push = backup(RequestedMode::Push);
        let running = |has_jobs| Seen {
            is_running: true,
            has_jobs,
            vm_runs: true,
            ..Seen::default()
        };
        let begun = Some(Stage::Begun);
        assert_eq!(verdict(&push, begun, None, running(true)), Verdict::Runs);
        assert_eq!(
            verdict(&push, begun, None, running(false)),
            Verdict::RunsWithoutJobs
        );
        // libvirt sends the event before its job is over.
        let completed = end(JobType::Completed, None);
        let closed = Seen {
            is_closed: true,
            ..running(true)
        };
        assert_eq!(
            verdict(&push, begun, Some(completed), closed),
            Verdict::Ended(succeeded(None))
        );
    }

    #[test]
    fn only_a_start_whose_answer_was_lost_can_have_never_begun() {
        let push = backup(RequestedMode::Push);
        let nothing = || Seen {
            vm_runs: true,
            is_closed: true,
            ..Seen::default()
        };
        let uncertain = verdict(&push, Some(Stage::Uncertain), None, nothing());
        assert!(matches!(uncertain, Verdict::NeverBegan(id) if id.name == "b"));
        for stage in [None, Some(Stage::Begun), Some(Stage::Adopted)] {
            let unknown = verdict(&push, stage, None, nothing());
            assert!(
                matches!(unknown, Verdict::Ended(it) if it.failed),
                "{stage:?}"
            );
        }
        let ended = Seen {
            ended: Some(end(JobType::Completed, None)),
            ..nothing()
        };
        assert_eq!(
            verdict(&push, Some(Stage::Uncertain), None, ended),
            Verdict::Ended(succeeded(None))
        );
    }

    #[test]
    fn images_that_are_still_open_fail_a_push_alone() {
        let ended = || Seen {
            ended: Some(end(JobType::Completed, None)),
            ..Seen::default()
        };
        for (mode, fails) in [(RequestedMode::Push, true), (RequestedMode::Pull, false)] {
            let verdict = verdict(&backup(mode), Some(Stage::Begun), None, ended());
            assert!(
                matches!(&verdict, Verdict::Ended(it) if it.failed == fails),
                "{verdict:?}"
            );
        }
        let anonymous = BackupMetadata {
            start_timestamp: None,
            ..backup(RequestedMode::Push)
        };
        let uncertain = verdict(&anonymous, Some(Stage::Uncertain), None, Seen::default());
        assert!(matches!(uncertain, Verdict::Ended(it) if it.failed));
        let lost_one = verdict(
            &backup(RequestedMode::Pull),
            Some(Stage::Lost),
            None,
            ended(),
        );
        assert_eq!(lost_one, Verdict::Ended(lost()));
    }

    #[test]
    fn a_backup_that_was_written_to_the_end_is_complete() {
        let end = end(JobType::Completed, None);
        for mode in [RequestedMode::Push, RequestedMode::Pull] {
            assert_eq!(after(mode, &end, true), (false, String::new()));
        }
    }

    #[test]
    fn a_backup_whose_images_were_not_closed_has_failed() {
        let complete = outcome(
            RequestedMode::Push,
            Some(&end(JobType::Completed, None)),
            false,
        );
        assert!(!complete.failed);
        assert!(complete.not_closed().failed);
        let lost = lost();
        assert_eq!(lost.clone().not_closed(), lost);
    }

    #[test]
    fn a_cancelled_push_has_failed_and_a_cancelled_pull_was_read() {
        let end = end(JobType::Cancelled, Some(CANCELED));
        let (failed, message) = after(RequestedMode::Push, &end, true);
        assert!(failed);
        assert_eq!(message, "backup aborted: Operation canceled");
        assert_eq!(
            after(RequestedMode::Pull, &end, true),
            (false, String::new())
        );
        // libvirt reports such a backup as completed.
        let completed = JobEnd {
            job_type: JobType::Completed,
            ..end.clone()
        };
        assert_eq!(
            after(RequestedMode::Pull, &completed, true),
            (false, String::new())
        );
        // The VM may end right after the abort.
        assert_eq!(
            after(RequestedMode::Pull, &end, false),
            (false, String::new())
        );
    }

    #[test]
    fn a_backup_whose_vm_ends_has_failed() {
        let end = end(JobType::Cancelled, None);
        for mode in [RequestedMode::Push, RequestedMode::Pull] {
            let (failed, message) = after(mode, &end, false);
            assert!(failed && !message.is_empty(), "{mode:?} {message}");
        }
    }

    #[test]
    fn a_failure_has_a_reason_in_any_case() {
        let full = end(JobType::Failed, Some("No space left on device"));
        for mode in [RequestedMode::Push, RequestedMode::Pull] {
            assert_eq!(
                after(mode, &full, true),
                (true, "No space left on device".to_owned())
            );
            for job_type in [JobType::Failed, JobType::None, JobType::Other(9)] {
                let (failed, message) = after(mode, &end(job_type, None), true);
                assert!(failed && !message.is_empty());
            }
            let unseen = outcome(mode, None, true);
            assert!(unseen.failed && !unseen.message.is_empty());
        }
    }

    #[test]
    fn an_event_alone_tells_success_from_failure() {
        let of = |success, message: Option<&str>| {
            JobEnd::of_event(success, message.map(str::to_owned)).job_type
        };
        assert_eq!(of(Some(true), None), JobType::Completed);
        assert_eq!(of(Some(false), None), JobType::Cancelled);
        assert_eq!(of(Some(false), Some(CANCELED)), JobType::Cancelled);
        assert_eq!(of(Some(false), Some("no space")), JobType::Failed);
        assert_eq!(of(None, None), JobType::Cancelled);
    }
}
