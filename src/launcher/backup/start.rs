//! Starts a push or pull backup with its checkpoint, while the guest is frozen.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::BackupError;
use super::{Backup, Stage};
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{CHANGE_TIMEOUT, blocking, read_spec, within};
use crate::launcher::vm::metadata::Quiesced;
use crate::launcher::vm::{JobKind, Permit};
use api::pod_paths::BACKUP_SOCKET;
use api::vmi::Vmi;
use convert::backup::{BackupId, BackupPlan, Start, backup_plan};
use domain::disks::Disk;
use domain::metadata::BackupMetadata;
use libvirt::{ChangeableDomain, WhichJob, XmlKind};
use os::failpoints;
use os::lock::lock;
use pod::BackupDir;

/// The guest's file systems are thawed after this time, by the next launcher if necessary. libvirt
/// needs less time to start the backup.
// D-backup-6 (docs/differences.md).
const THAW_AFTER: Duration = Duration::from_secs(60);

/// Names the step in errors.
const WHAT: &str = "starting the backup";
const PANICKED: LauncherError = LauncherError::Worker { what: WHAT };

/// Whether a requested backup is new.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    New,
    Running,
}

impl Backup {
    /// Starts a backup, which continues if that takes longer than the caller waits. A repeated
    /// request waits for it and succeeds if it has started.
    ///
    /// # Errors
    /// The phase, a job or another backup prevents it; the target is missing; or libvirt's error.
    pub(super) async fn start(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        start: Start,
    ) -> Result<(), LauncherError> {
        within(WHAT, CHANGE_TIMEOUT, self.start_or_join(vmi, start)).await
    }

    async fn start_or_join(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        start: Start,
    ) -> Result<(), LauncherError> {
        loop {
            self.libvirt.vm.wait_until_phase_is_certain().await;
            // No await follows before the spawned task, so no other start can come in between.
            match known(self.libvirt.vm.metadata().backup(), &start.id)? {
                Known::New => break,
                Known::Running if !self.is_undecided() => return Ok(()),
                // If a start succeeds, virt-controller expects a report of the backup's end.
                // D-backup-10 (docs/differences.md).
                Known::Running => self.wait_until_start_decided().await,
            }
        }
        let job = self.libvirt.vm.begin(JobKind::Backup)?;
        let permit = job.permit();
        // What was seen is the end of an earlier backup.
        *lock(&self.seen_end) = None;
        self.began(job, Stage::Starting);
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.backup_began(&start));
        let this = self.clone();
        let started = tokio::spawn(async move {
            let (begins, id) = (this.clone(), start.id.clone());
            // A task of its own: the job must not outlive a panic.
            let begun = tokio::spawn(async move { begins.begin(&permit, &vmi, &start).await });
            let started = begun.await.unwrap_or(Err(PANICKED));
            this.note_start(&id, &started);
            started
        });
        started.await.unwrap_or(Err(PANICKED))
    }

    /// Records whether libvirt has started the backup.
    fn note_start(&self, id: &BackupId, started: &Result<(), LauncherError>) {
        // It may have ended before the guest was thawed, and another one may have begun.
        let metadata = self.libvirt.vm.metadata();
        let Ok(Known::Running) = known(metadata.backup(), id) else {
            return;
        };
        let Err(error) = started else {
            tracing::info!(backup = id.name, "VMI backup job initiated");
            return self.set_stage(Stage::Begun);
        };
        tracing::error!(backup = id.name, reason = %os::logging::chain(error), "Backup failed to start");
        let has_no_answer =
            error.is_connection_lost() || matches!(error, LauncherError::Worker { .. });
        if has_no_answer && self.stage() == Some(Stage::Called) {
            // libvirt may have started the backup; this is checked when libvirt is back.
            self.set_stage(Stage::Uncertain);
            return self.changed.notify_one();
        }
        self.forget(id);
    }

    /// Forgets a backup that has not started. It may be requested again.
    pub(super) fn forget(&self, id: &BackupId) {
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.forget_backup(id));
        self.ended();
    }

    async fn begin(
        self: &Arc<Self>,
        permit: &Permit,
        vmi: &Arc<Vmi>,
        start: &Start,
    ) -> Result<(), LauncherError> {
        let disks = self.live_disks().await?;
        let (root, target) = (self.root.clone(), start.target_path.clone());
        let (vm, name) = (vmi.metadata.name.clone(), start.id.dated_name());
        let made = blocking("making the backup's directory", move || {
            Ok(BackupDir::make(&root, &target, &vm, &name)?)
        });
        let dir = made.await?;
        let begun = self.begin_in(permit, &dir, &disks, vmi, start).await;
        if let Err(error) = &begun
            && !error.is_connection_lost()
        {
            let removed = blocking("removing the backup's directory", move || Ok(dir.remove()?));
            if let Err(error) = removed.await {
                tracing::warn!(reason = %os::logging::chain(&error), "The backup's directory stays");
            }
        }
        begun
    }

    /// Starts the backup in its directory, with the guest frozen unless `skipQuiesce` or the freeze
    /// fails.
    async fn begin_in(
        self: &Arc<Self>,
        permit: &Permit,
        dir: &BackupDir,
        disks: &[Disk],
        vmi: &Arc<Vmi>,
        start: &Start,
    ) -> Result<(), LauncherError> {
        let socket = self.root.path(BACKUP_SOCKET);
        let plan = backup_plan(
            disks,
            start,
            &dir.path().to_string_lossy(),
            &socket.to_string_lossy(),
        )
        .map_err(BackupError::Plan)?;
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.backup_planned(&start.id, &plan));
        if start.skip_quiesce {
            self.note_quiesced(&start.id, Quiesced::Skipped);
            return self.begin_by_libvirt(permit, plan).await;
        }
        let frozen_at = Instant::now();
        let frozen = self.freezer.freeze(vmi, THAW_AFTER).await;
        let quiesced = match &frozen {
            Ok(()) => Quiesced::Succeeded,
            Err(error) => {
                tracing::warn!(reason = %os::logging::chain(error), "Failed freezing guest filesystem");
                Quiesced::Failed(os::logging::chain(error))
            }
        };
        self.note_quiesced(&start.id, quiesced);
        failpoints::hit("backup.frozen");
        let begun = self.begin_by_libvirt(permit, plan).await;
        if frozen.is_ok() {
            if frozen_at.elapsed() >= THAW_AFTER {
                let late = "the guest's file systems were thawed before the backup had begun";
                self.note_quiesced(&start.id, Quiesced::Failed(late.to_owned()));
            }
            if let Err(error) = self.freezer.unfreeze().await {
                // The thaw that the freeze has scheduled will follow.
                tracing::error!(reason = %os::logging::chain(&error), "Failed to unfreeze filesystem after the backup has begun");
            }
        }
        begun
    }

    fn note_quiesced(&self, id: &BackupId, quiesced: Quiesced) {
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.backup_quiesced(id, quiesced));
    }

    /// Calls `virDomainBackupBegin`, which also makes the checkpoint, without a time limit.
    async fn begin_by_libvirt(
        self: &Arc<Self>,
        permit: &Permit,
        plan: BackupPlan,
    ) -> Result<(), LauncherError> {
        let this = self.clone();
        let begin = move |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            // The end of an earlier backup must not be taken for that of this one.
            domain.job_state(WhichJob::TakeCompleted)?;
            this.set_stage(Stage::Called);
            let begun = domain.begin_backup(&plan.backup.to_xml(), &plan.checkpoint.to_xml());
            failpoints::hit("backup.begun");
            Ok(begun?)
        };
        self.libvirt.change_in_any_time(permit, WHAT, begin).await
    }

    async fn live_disks(&self) -> Result<Vec<Disk>, LauncherError> {
        let read = |connection: &libvirt::Connection, name: &str| {
            let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
            Ok(read_spec(&domain, XmlKind::Live)?.devices.disks)
        };
        self.libvirt.read("reading the domain's disks", read).await
    }
}

/// Compares the request with the last backup.
fn known(last: Option<&BackupMetadata>, id: &BackupId) -> Result<Known, BackupError> {
    let Some(last) = last else {
        return Ok(Known::New);
    };
    let is_same = last.name == id.name && last.start_timestamp == Some(id.started);
    match (is_same, last.end_timestamp) {
        (true, None) => Ok(Known::Running),
        (true, Some(finished)) => Err(BackupError::Ended {
            name: id.name.clone(),
            finished,
            completed: last.completed,
        }),
        (false, None) => Err(BackupError::OtherRuns(last.name.clone())),
        (false, Some(_)) => Ok(Known::New),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, started: &str) -> BackupId {
        BackupId {
            name: name.into(),
            started: started.parse().unwrap(),
        }
    }

    #[test]
    fn a_backup_is_made_once_and_one_at_a_time() {
        let (one, two) = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z");
        let mut last = BackupMetadata {
            name: "b".into(),
            start_timestamp: Some(one.parse().unwrap()),
            ..BackupMetadata::default()
        };
        assert_eq!(known(None, &id("b", one)).unwrap(), Known::New);
        assert_eq!(known(Some(&last), &id("b", one)).unwrap(), Known::Running);
        for other in [id("b", two), id("c", one)] {
            let refusal = known(Some(&last), &other).unwrap_err();
            assert!(matches!(refusal, BackupError::OtherRuns(_)), "{refusal}");
        }
        last.end_timestamp = Some(two.parse().unwrap());
        let refusal = known(Some(&last), &id("b", one)).unwrap_err();
        let text = refusal.to_string();
        assert!(
            text.contains(two) && text.contains("completed: false"),
            "{text}"
        );
        assert_eq!(known(Some(&last), &id("b", two)).unwrap(), Known::New);
    }
}
