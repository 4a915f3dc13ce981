//! KubeVirt's metadata of the domain. [`Vm`](super::vm::Vm) owns them in memory; the definition's
//! XML has a copy for a later launcher.

mod backup;

use api::vmi::Vmi;
use domain::metadata::{
    AccessCredentialMetadata, GracePeriodMetadata, KubeVirtMetadata, MemoryDumpMetadata,
    MigrationMetadata, Time,
};

pub(in crate::launcher) use backup::{Outcome, Quiesced};

/// Grace period in seconds of a VMI without `spec.terminationGracePeriodSeconds`.
const DEFAULT_GRACE_PERIOD: i64 = 30;
/// The condition of a VMI whose guest is paused, and its reason if a disk has failed.
const PAUSED_CONDITION: &str = "Paused";
const DISK_FAILED: &str = "PausedIOError";
/// Failure reason of a memory dump that an earlier launcher had started.
const DUMP_LOST: &str = "the launcher was restarted during the memory dump";
/// KubeVirt's words for a migration's abort (`abortStatus`).
const ABORTING: &str = "Aborting";
const ABORTED: &str = "Succeeded";
const ABORT_FAILED: &str = "Failed";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata(KubeVirtMetadata);

impl Metadata {
    /// The metadata of a VMI when only its UID is known.
    pub fn new(uid: &str) -> Self {
        Self(KubeVirtMetadata {
            uid: uid.into(),
            ..KubeVirtMetadata::default()
        })
    }

    /// The metadata in the form that documents contain.
    pub fn get(&self) -> &KubeVirtMetadata {
        &self.0
    }

    /// Adopts the metadata of a domain that an earlier launcher ran, from its XML.
    ///
    /// The name `<namespace>_<name>` identifies the domain. As in the reference, the UID is not
    /// compared. A VMI that is deleted and created again under the same name gets another pod:
    /// libvirt's state belongs to the pod, and the old QEMU ends with the old pod. So libvirt has
    /// no other VMI's domain here. Refusing another UID would leave a running guest unmanaged.
    pub fn adopt(&mut self, xml: &KubeVirtMetadata) {
        let uid = if self.0.uid.is_empty() {
            xml.uid.clone()
        } else {
            self.0.uid.clone()
        };
        self.0 = KubeVirtMetadata { uid, ..xml.clone() };
        // D-vm-17 (docs/differences.md).
        let dump = self.0.memory_dump.as_ref();
        if dump.is_some_and(|dump| dump.end_timestamp.is_none()) {
            self.memory_dump_ended(Some(DUMP_LOST.to_owned()));
        }
    }

    /// Resets the metadata for a new domain of this VMI.
    pub fn begin(&mut self, vmi: &Vmi) {
        // The pod may be ending, and the guest be asked to, before its domain has started.
        let grace_period = GracePeriodMetadata {
            deletion_grace_period_seconds: grace_period(vmi),
            ..self.0.grace_period.take().unwrap_or_default()
        };
        self.0 = KubeVirtMetadata {
            uid: vmi.metadata.uid.clone(),
            grace_period: Some(grace_period),
            paused_until_pinned: is_pinned_after_start(vmi) && !is_paused_by_user(vmi),
            ..KubeVirtMetadata::default()
        };
    }

    /// The guest does not wait for its emulator to be pinned. Returns whether it did.
    pub fn no_longer_until_pinned(&mut self) -> bool {
        std::mem::take(&mut self.0.paused_until_pinned)
    }

    /// Takes the VMI's grace period, which may have changed.
    pub fn take_grace_period(&mut self, vmi: &Vmi) {
        self.grace().deletion_grace_period_seconds = grace_period(vmi);
    }

    /// The grace period in seconds before and after [`Self::take_grace_period`], if it changes.
    pub fn changed_grace_period(&self, vmi: &Vmi) -> Option<(i64, i64)> {
        let before = self.0.grace_period.as_ref()?.deletion_grace_period_seconds;
        let after = grace_period(vmi);
        (before != after).then_some((before, after))
    }

    /// The guest was asked to shut down: virt-handler counts the grace period from now on.
    pub fn shutdown_requested(&mut self) {
        self.grace()
            .deletion_timestamp
            .get_or_insert_with(Time::now);
    }

    /// `markedForGracefulShutdown`: the pod is being deleted; virt-handler should ask the guest to
    /// shut down.
    pub fn mark_for_graceful_shutdown(&mut self) {
        self.grace().marked_for_graceful_shutdown = Some(true);
    }

    /// Whether the last memory dump, in progress or not, has this file name.
    pub fn is_memory_dump(&self, file_name: &str) -> bool {
        let dump = self.0.memory_dump.as_ref();
        dump.is_some_and(|dump| dump.file_name == file_name)
    }

    pub fn memory_dump_began(&mut self, file_name: &str) {
        self.0.memory_dump = Some(MemoryDumpMetadata {
            file_name: file_name.into(),
            start_timestamp: Some(Time::now()),
            ..MemoryDumpMetadata::default()
        });
    }

    /// The memory dump has ended; `failure` says why it failed.
    pub fn memory_dump_ended(&mut self, failure: Option<String>) {
        let dump = self.0.memory_dump.get_or_insert_default();
        dump.completed = true;
        dump.end_timestamp = Some(Time::now());
        dump.failed = failure.is_some();
        dump.failure_reason = failure.map_or_else(String::new, |failure| {
            format!("Domain memory dump failed: {failure}")
        });
    }

    /// The last migration, in progress or not.
    pub fn migration(&self) -> Option<&MigrationMetadata> {
        self.0.migration.as_ref()
    }

    /// The UID of the migration in progress, if any.
    pub fn unfinished_migration(&self) -> Option<String> {
        let migration = self.migration()?;
        let is_unfinished =
            migration.start_timestamp.is_some() && migration.end_timestamp.is_none();
        is_unfinished.then(|| migration.uid.clone())
    }

    /// A migration to another node has begun.
    pub fn migration_out_began(&mut self, uid: &str) {
        self.0.migration = Some(MigrationMetadata {
            uid: uid.into(),
            start_timestamp: Some(Time::now()),
            mode: "PreCopy".into(),
            ..MigrationMetadata::default()
        });
    }

    /// The migration to another node has ended; `failure` says why it failed.
    pub fn migration_out_ended(&mut self, uid: &str, failure: Option<String>) {
        let migration = self.migration_in_progress().filter(|it| it.uid == uid);
        if let Some(migration) = migration {
            // libvirt accepted the abort late or was not asked. D-mig-3 (docs/differences.md).
            if matches!(migration.abort_status.as_str(), ABORTING | ABORTED) {
                let status = if failure.is_some() {
                    ABORTED
                } else {
                    ABORT_FAILED
                };
                migration.abort_status = status.into();
            }
            migration.end_timestamp = Some(Time::now());
            migration.failed = failure.is_some();
            migration.failure_reason = failure.unwrap_or_default();
        }
    }

    /// Records how the guest's memory is transferred (`mode`): `PreCopy`, `PostCopy` or `Paused`.
    pub fn migration_mode(&mut self, mode: &str) {
        if let Some(migration) = self.migration_in_progress() {
            mode.clone_into(&mut migration.mode);
        }
    }

    /// Requests the abort of the migration in progress, unless that has already been requested.
    pub fn migration_abort_requested(&mut self) {
        if let Some(migration) = self.migration_in_progress()
            && !matches!(migration.abort_status.as_str(), ABORTING | ABORTED)
        {
            migration.abort_status = ABORTING.into();
        }
    }

    /// libvirt has accepted or refused the abort.
    pub fn migration_abort_ended(&mut self, succeeded: bool) {
        let status = if succeeded { ABORTED } else { ABORT_FAILED };
        if let Some(migration) = self.migration_in_progress() {
            migration.abort_status = status.into();
        }
    }

    /// Whether the migration in progress has a requested abort that libvirt has not accepted yet.
    pub fn is_migration_aborting(&self) -> bool {
        self.is_migration_abort_status(&[ABORTING])
    }

    /// Whether an abort was requested, accepted or not.
    pub fn has_migration_abort(&self) -> bool {
        self.is_migration_abort_status(&[ABORTING, ABORTED])
    }

    /// Whether a migration, to or from another node, is in progress.
    pub fn is_migrating(&self) -> bool {
        let migration = self.0.migration.as_ref();
        migration.is_some_and(|it| it.start_timestamp.is_some() && it.end_timestamp.is_none())
    }

    fn is_migration_abort_status(&self, wanted: &[&str]) -> bool {
        let migration = self.migration().filter(|it| it.end_timestamp.is_none());
        migration.is_some_and(|it| wanted.contains(&it.abort_status.as_str()))
    }

    fn migration_in_progress(&mut self) -> Option<&mut MigrationMetadata> {
        let migration = self.0.migration.as_mut();
        migration.filter(|it| it.start_timestamp.is_some() && it.end_timestamp.is_none())
    }

    /// The migration with this UID brings the domain here. A second call keeps its record, and
    /// resets what a start resets.
    pub fn migration_in_began(&mut self, vmi: &Vmi, uid: &str) {
        let began = self.0.migration.take();
        self.begin(vmi);
        self.0.disk_failed = vmi.condition_reason(PAUSED_CONDITION) == Some(DISK_FAILED);
        self.0.migration = began.filter(|began| began.uid == uid).or_else(|| {
            Some(MigrationMetadata {
                uid: uid.into(),
                start_timestamp: Some(Time::now()),
                mode: "PreCopy".into(),
                ..MigrationMetadata::default()
            })
        });
    }

    /// The domain has arrived and the migration is over (`endTimestamp`).
    pub fn migration_in_ended(&mut self) {
        self.0.disk_failed = false;
        let migration = self.0.migration.get_or_insert_default();
        migration.end_timestamp.get_or_insert_with(Time::now);
    }

    /// Records that the guest's access credentials are set, or why they are not: virt-handler's
    /// condition `AccessCredentialsSynchronized`.
    pub fn access_credentials_applied(&mut self, failure: Option<String>) {
        self.0.access_credential = Some(AccessCredentialMetadata {
            succeeded: failure.is_none(),
            message: failure.unwrap_or_default(),
        });
    }

    fn grace(&mut self) -> &mut GracePeriodMetadata {
        self.0.grace_period.get_or_insert_default()
    }
}

/// The VMI's grace period, in seconds.
fn grace_period(vmi: &Vmi) -> i64 {
    vmi.spec
        .termination_grace_period_seconds
        .unwrap_or(DEFAULT_GRACE_PERIOD)
}

/// `startStrategy: Paused` (`ShouldStartPaused`), which SEV's attestation needs.
pub fn is_paused_by_user(vmi: &Vmi) -> bool {
    vmi.spec.start_strategy.as_deref() == Some("Paused")
}

/// `isolateEmulatorThread`: virt-handler pins the emulator of the started domain, and syncs again.
fn is_pinned_after_start(vmi: &Vmi) -> bool {
    let cpu = vmi.spec.domain.cpu.as_ref();
    cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement && cpu.isolate_emulator_thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grace(metadata: &Metadata) -> GracePeriodMetadata {
        metadata.get().grace_period.clone().unwrap_or_default()
    }

    #[test]
    fn the_grace_clock_is_started_once() {
        let mut metadata = Metadata::new("u-1");
        metadata.begin(&Vmi::default());
        let before = grace(&metadata);
        assert_eq!(before.deletion_grace_period_seconds, 30);
        assert_eq!(before.deletion_timestamp, None);
        metadata.shutdown_requested();
        let started = grace(&metadata).deletion_timestamp;
        assert!(started.is_some());
        let known = metadata.clone();
        metadata.shutdown_requested();
        assert_eq!(metadata, known);
        metadata.mark_for_graceful_shutdown();
        assert_ne!(metadata, known);
        let known = metadata.clone();
        metadata.mark_for_graceful_shutdown();
        assert_eq!(metadata, known);
        assert_eq!(grace(&metadata).deletion_timestamp, started);
    }

    #[test]
    fn the_grace_period_follows_the_vmi() {
        let mut metadata = Metadata::new("u-1");
        let mut vmi = Vmi::default();
        metadata.begin(&vmi);
        let known = metadata.clone();
        metadata.take_grace_period(&vmi);
        assert_eq!(metadata, known);
        assert_eq!(metadata.changed_grace_period(&vmi), None);
        vmi.spec.termination_grace_period_seconds = Some(0);
        assert_eq!(metadata.changed_grace_period(&vmi), Some((30, 0)));
        metadata.take_grace_period(&vmi);
        assert_eq!(grace(&metadata).deletion_grace_period_seconds, 0);
    }

    #[test]
    fn a_memory_dump_is_known_by_its_file_until_the_next_one() {
        let mut metadata = Metadata::new("u-1");
        assert!(!metadata.is_memory_dump("a.memory.dump"));
        metadata.memory_dump_began("a.memory.dump");
        assert!(metadata.is_memory_dump("a.memory.dump"));
        metadata.memory_dump_ended(Some("no space left".to_owned()));
        let dump = metadata.get().memory_dump.clone().unwrap_or_default();
        assert!(dump.completed && dump.failed && dump.end_timestamp.is_some());
        let reason = "Domain memory dump failed: no space left";
        assert_eq!(dump.failure_reason, reason);
        metadata.memory_dump_began("b.memory.dump");
        assert!(!metadata.is_memory_dump("a.memory.dump"));
        metadata.memory_dump_ended(None);
        let dump = metadata.get().memory_dump.clone().unwrap_or_default();
        assert!(!dump.failed);
    }

    #[test]
    fn a_memory_dump_whose_launcher_has_ended_has_failed() {
        let mut metadata = Metadata::new("u-1");
        metadata.memory_dump_began("a.memory.dump");
        let xml = metadata.get().clone();
        let mut next = Metadata::new("u-1");
        next.adopt(&xml);
        let dump = next.get().memory_dump.clone().unwrap_or_default();
        assert!(dump.completed && dump.failed && !dump.failure_reason.is_empty());
        assert!(dump.end_timestamp.is_some());
        // A dump that had ended stays unchanged.
        metadata.memory_dump_ended(None);
        let xml = metadata.get().clone();
        next.adopt(&xml);
        assert_eq!(next.get().memory_dump, xml.memory_dump);
    }

    #[test]
    fn a_migration_from_here_ends_once_and_only_as_itself() {
        let mut metadata = Metadata::new("u-1");
        metadata.migration_abort_requested();
        assert_eq!(metadata.migration(), None);
        metadata.migration_out_began("m-1");
        metadata.migration_mode("PostCopy");
        metadata.migration_out_ended("m-2", None);
        assert_eq!(metadata.migration().and_then(|it| it.end_timestamp), None);
        metadata.migration_out_ended("m-1", Some("no network".to_owned()));
        let ended = metadata.migration().cloned().unwrap_or_default();
        assert!(ended.failed && ended.end_timestamp.is_some());
        assert_eq!(ended.mode, "PostCopy");
        assert_eq!(ended.failure_reason, "no network");
        metadata.migration_out_ended("m-1", None);
        metadata.migration_mode("PreCopy");
        metadata.migration_abort_requested();
        assert_eq!(metadata.migration(), Some(&ended));
        metadata.migration_out_began("m-2");
        assert!(!metadata.migration().is_some_and(|it| it.failed));
    }

    #[test]
    fn an_abort_is_requested_again_only_after_it_has_failed() {
        let mut metadata = Metadata::new("u-1");
        metadata.migration_out_began("m-1");
        assert!(!metadata.has_migration_abort());
        metadata.migration_abort_requested();
        assert!(metadata.is_migration_aborting() && metadata.has_migration_abort());
        metadata.migration_abort_ended(false);
        assert!(!metadata.has_migration_abort());
        metadata.migration_abort_requested();
        metadata.migration_abort_ended(true);
        let known = metadata.clone();
        metadata.migration_abort_requested();
        assert_eq!(metadata, known);
        assert!(!metadata.is_migration_aborting() && metadata.has_migration_abort());
    }

    #[test]
    fn the_end_of_a_migration_is_the_end_of_its_abort() {
        let ended = |taken: Option<bool>, failure: Option<&str>| {
            let mut metadata = Metadata::new("u-1");
            metadata.migration_out_began("m-1");
            metadata.migration_abort_requested();
            if let Some(succeeded) = taken {
                metadata.migration_abort_ended(succeeded);
            }
            metadata.migration_out_ended("m-1", failure.map(str::to_owned));
            let migration = metadata.migration().cloned().unwrap_or_default();
            migration.abort_status
        };
        // Nobody has asked libvirt, as the migration had not started.
        assert_eq!(ended(None, Some("aborted")), ABORTED);
        assert_eq!(ended(Some(true), Some("aborted")), ABORTED);
        assert_eq!(ended(Some(true), None), ABORT_FAILED);
        assert_eq!(ended(None, None), ABORT_FAILED);
        assert_eq!(ended(Some(false), Some("no network")), ABORT_FAILED);
    }

    #[test]
    fn a_migration_that_is_prepared_again_goes_on_and_ends_once() {
        let migration = |metadata: &Metadata| metadata.get().migration.clone().unwrap_or_default();
        let mut metadata = Metadata::new("u-1");
        metadata.migration_in_began(&Vmi::default(), "m-1");
        let began = migration(&metadata);
        assert!(began.start_timestamp.is_some() && began.end_timestamp.is_none());
        assert_eq!(began.uid, "m-1");
        assert_eq!(began.mode, "PreCopy");
        metadata.migration_in_began(&Vmi::default(), "m-1");
        assert_eq!(migration(&metadata), began);
        metadata.migration_in_ended();
        let ended = migration(&metadata);
        assert!(ended.end_timestamp.is_some());
        metadata.migration_in_ended();
        assert_eq!(migration(&metadata), ended);
        metadata.migration_in_began(&Vmi::default(), "m-2");
        assert_eq!(migration(&metadata).end_timestamp, None);
    }

    #[test]
    fn a_domain_that_was_there_brings_its_metadata() {
        let mut metadata = Metadata::new("u-1");
        let grace_period = GracePeriodMetadata {
            deletion_grace_period_seconds: 7,
            ..GracePeriodMetadata::default()
        };
        metadata.adopt(&KubeVirtMetadata {
            uid: "u-2".into(),
            grace_period: Some(grace_period.clone()),
            ..KubeVirtMetadata::default()
        });
        assert_eq!(metadata.get().uid, "u-1");
        assert_eq!(grace(&metadata), grace_period);
    }
}
