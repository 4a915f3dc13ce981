//! Detects the end of a backup: by libvirt's event, or by asking libvirt afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

use super::error::BackupError;
use super::outcome::{JobEnd, Seen, Verdict, id_of, verdict};
use super::{Backup, Stage};
use crate::launcher::admit;
use crate::launcher::error::LauncherError;
use crate::launcher::vm::metadata::Outcome;
use crate::launcher::vm::{JobKind, Request};
use convert::backup::{QUERY_JOBS, has_backup_jobs};
use domain::metadata::BackupMetadata;
use libvirt::{ChangeableDomain, Connection, Event, JobOperation, JobType, WhichJob};
use os::failpoints;

/// Interval of checking a backup if libvirt may not report its end or could not tell its state.
const WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// Limit of QEMU's list of jobs, which is always shorter.
const MAX_ANSWER_BYTES: usize = 1 << 20;

impl Backup {
    /// Follows backups for the launcher's life.
    pub(in crate::launcher) async fn run(self: Arc<Self>, events: Receiver<Event>) {
        tokio::spawn(self.clone().follow(events));
        self.libvirt.vm.wait_until_shown().await;
        if self.libvirt.vm.snapshot().phase.is_visible() {
            // An earlier launcher may have started one.
            self.check().await;
        }
        loop {
            let changed = self.changed.notified();
            if self.must_be_watched() {
                drop(timeout(WATCH_INTERVAL, changed).await);
            } else {
                changed.await;
            }
            self.check().await;
        }
    }

    /// Aborts libvirt's backup if the metadata have none in progress: nobody can use it, and it
    /// blocks the next one. libvirt's daemon may come back with such a backup if it was killed just
    /// after it had reported the end.
    async fn abort_unknown(self: &Arc<Self>) {
        let what = "looking for a backup";
        let this = self.clone();
        let abort = move |domain: Option<ChangeableDomain>| {
            let Some(domain) = domain else {
                return Ok(false);
            };
            let runs = domain.is_active()?
                && domain.job_state(WhichJob::Running)?.operation == JobOperation::Backup;
            if runs && this.excludes_others() {
                tracing::warn!("Aborting a backup that nobody waits for");
                failpoints::hit("backup.unknown");
                domain.abort_job()?;
            }
            Ok(runs)
        };
        let abort = admit::change(&self.libvirt, Request::AbortBackup, what, abort);
        match abort.await {
            Ok(false) if self.stage() == Some(Stage::Lost) => self.ended(),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(reason = %os::logging::chain(&error), "Could not check whether a backup is in progress");
                if is_busy(&error) {
                    self.recheck_later(None);
                }
            }
        }
    }

    /// Keeps other backups from beginning until the one that nobody knows has ended: its end would
    /// be taken for theirs. Returns false if one has begun.
    fn excludes_others(&self) -> bool {
        let job = self.libvirt.vm.begin(JobKind::Backup);
        job.map(|job| self.began(job, Stage::Lost)).is_ok() || self.stage() == Some(Stage::Lost)
    }

    /// The running backup, according to the metadata.
    fn running(&self) -> Option<BackupMetadata> {
        let metadata = self.libvirt.vm.metadata();
        let last = metadata.backup();
        last.filter(|last| last.end_timestamp.is_none()).cloned()
    }

    /// Compares the backup's metadata with libvirt's state, and records the end.
    async fn check(self: &Arc<Self>) {
        // First of all: an end that comes after it wakes the next check.
        let by_event = self.take_end();
        if by_event.is_some() {
            failpoints::hit("backup.completing");
        }
        let stage = self.stage();
        let Some(backup) = self.running() else {
            return self.abort_unknown().await;
        };
        // `note_start` says how far a start has come, once libvirt has answered.
        if by_event.is_none() && matches!(stage, Some(Stage::Starting | Stage::Called)) {
            return self.recheck_later(None);
        }
        let seen = match self.libvirt.read("asking for the backup", seen).await {
            Ok(seen) => seen,
            Err(error) if by_event.is_none() || is_busy(&error) => {
                let reason = os::logging::chain(&error);
                tracing::warn!(reason, "Could not read the backup's state");
                return self.recheck_later(by_event);
            }
            // The event alone also tells how the backup ended.
            Err(_) => Seen {
                vm_runs: true,
                ..Seen::default()
            },
        };
        let is_same = self
            .running()
            .is_some_and(|now| id_of(&now) == id_of(&backup));
        if !is_same {
            // It was aborted meanwhile, or its start has failed: another one may have begun.
            return;
        }
        match verdict(&backup, stage, by_event, seen) {
            Verdict::Runs => self.adopt_running(stage),
            Verdict::RunsWithoutJobs => {
                self.adopt_running(stage);
                self.end_lost().await;
            }
            Verdict::NeverBegan(id) => {
                tracing::info!(backup = backup.name, "The backup has not begun");
                self.forget(&id);
            }
            Verdict::Ended(outcome) => self.end(&backup, outcome),
        }
    }

    /// Adopts a running backup, also one that this launcher has begun: libvirt is asked only if
    /// events may have been missed, and the backup is watched from then on.
    fn adopt_running(self: &Arc<Self>, stage: Option<Stage>) {
        if stage.is_some() {
            return self.set_stage(Stage::Adopted);
        }
        match self.libvirt.vm.begin(JobKind::Backup) {
            Ok(job) => {
                tracing::info!("Adopting the backup that is in progress");
                self.began(job, Stage::Adopted);
            }
            Err(refusal) => {
                tracing::warn!(reason = %refusal, "The backup in progress is not followed");
            }
        }
    }

    /// Ends a backup that QEMU ended while libvirt was away: libvirt still waits for it. libvirt's
    /// event then ends the backup here too.
    async fn end_lost(&self) {
        self.set_stage(Stage::Lost);
        let what = "ending the backup";
        let abort = |domain: Option<ChangeableDomain>| {
            let Some(domain) = domain else { return Ok(()) };
            tracing::warn!("libvirt has lost track of the backup; ending it");
            Ok(domain.abort_job()?)
        };
        let abort = admit::change(&self.libvirt, Request::AbortBackup, what, abort);
        if let Err(error) = abort.await {
            tracing::warn!(reason = %os::logging::chain(&error), "The backup cannot be ended yet");
        }
    }

    fn end(self: &Arc<Self>, backup: &BackupMetadata, outcome: Outcome) {
        let name = &backup.name;
        if outcome.failed {
            tracing::error!(backup = name, reason = outcome.message, "Backup has failed");
        } else {
            tracing::info!(backup = name, "Backup has been completed successfully");
        }
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.backup_ended(backup, outcome));
        failpoints::hit("backup.ended");
        // virt-handler gets the end with an event of a new domain.
        self.libvirt.vm.refresh_as_added();
        self.ended();
        self.resume_guest();
    }
}

/// Whether libvirt is still finishing the backup: it keeps the domain busy until QEMU has written
/// the rest and closed the images.
fn is_busy(error: &LauncherError) -> bool {
    match error {
        LauncherError::Slow { .. } => true,
        LauncherError::Libvirt(error) => error.is_busy(),
        _ => false,
    }
}

fn seen(connection: &Connection, name: &str) -> Result<Seen, LauncherError> {
    let Some(domain) = connection.lookup(name)? else {
        return Ok(Seen::default());
    };
    let vm_runs = domain.is_active()?;
    // This command to QEMU waits until libvirt has handled the job's last event. QEMU's jobs end
    // before libvirt's job, so they are read first.
    let jobs = match vm_runs.then(|| domain.monitor_command(QUERY_JOBS, MAX_ANSWER_BYTES)) {
        Some(Err(error)) if error.is_busy() => return Err(error.into()),
        jobs => jobs,
    };
    let is_closed = matches!(jobs, Some(Ok(_)));
    let job = if vm_runs {
        Some(domain.job_state(WhichJob::Running)?)
    } else {
        None
    };
    let is_running = job
        .is_some_and(|job| job.operation == JobOperation::Backup && job.job_type != JobType::None);
    let has_jobs = match jobs {
        Some(jobs) if is_running => has_backup_jobs(&jobs?).map_err(BackupError::Jobs)?,
        _ => false,
    };
    let ended = JobEnd::of_stats(&domain.job_state(WhichJob::Completed)?);
    failpoints::hit("backup.seen");
    Ok(Seen {
        is_running,
        has_jobs,
        ended,
        vm_runs,
        is_closed,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::launcher::tests::{TestLauncher, play};
    use convert::backup::{BackupId, RequestedMode, Start};
    use domain::metadata::Time;

    #[test]
    fn a_backup_whose_events_were_missed_while_it_started_is_asked_for_later() {
        play(|| async {
            let test = TestLauncher::running().await;
            let (vm, backup) = (&test.launcher.vm, &test.launcher.backup);
            let start = Start {
                id: BackupId {
                    name: "b".to_owned(),
                    started: Time::now(),
                },
                mode: RequestedMode::Push,
                incremental: None,
                target_path: String::new(),
                skip_quiesce: true,
            };
            backup.began(vm.begin(JobKind::Backup).unwrap(), Stage::Starting);
            vm.change_metadata(|metadata| metadata.backup_began(&start));
            // The receiver of events has lagged.
            backup.recheck.store(true, Ordering::Relaxed);
            backup.check().await;
            assert!(backup.must_be_watched());
            assert_eq!(backup.stage(), Some(Stage::Starting));
        });
    }
}
