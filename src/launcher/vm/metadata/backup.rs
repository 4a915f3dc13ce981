//! A backup's metadata, as virt-handler sees them.

use super::Metadata;
use convert::backup::{BackupId, BackupPlan, Start};
use domain::metadata::{BackupMetadata, Time};

/// Whether the guest's file systems were frozen for a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quiesced {
    Succeeded,
    /// The freeze failed with this error.
    Failed(String),
    /// No freeze was requested.
    Skipped,
}

/// The result of a backup that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The backup cannot be used.
    pub failed: bool,
    /// Why the backup failed, or a remark on one that succeeded.
    pub message: String,
}

impl Metadata {
    /// The last backup, in progress or not.
    pub fn backup(&self) -> Option<&BackupMetadata> {
        self.0.backup.as_ref()
    }

    pub fn backup_began(&mut self, start: &Start) {
        self.0.backup = Some(BackupMetadata {
            name: start.id.name.clone(),
            mode: start.mode.as_str().into(),
            skip_quiesce: start.skip_quiesce,
            start_timestamp: Some(start.id.started),
            ..BackupMetadata::default()
        });
    }

    /// Records the backup's checkpoint and volumes.
    pub fn backup_planned(&mut self, id: &BackupId, plan: &BackupPlan) {
        if let Some(backup) = self.backup_of(id) {
            backup.checkpoint_name.clone_from(&plan.checkpoint.name);
            // Serializing fails only for maps with keys that are not text.
            backup.volumes = serde_json::to_string(&plan.volumes).unwrap_or_default();
        }
    }

    /// Records whether the guest's file systems were frozen.
    pub fn backup_quiesced(&mut self, id: &BackupId, quiesced: Quiesced) {
        let Some(backup) = self.backup_of(id) else {
            return;
        };
        let status = match quiesced {
            Quiesced::Succeeded => "Succeeded",
            Quiesced::Skipped => "Skipped",
            Quiesced::Failed(reason) => {
                backup.backup_msg = reason;
                "Failed"
            }
        };
        backup.quiesce_status = status.into();
    }

    pub fn backup_ended(&mut self, ended: &BackupMetadata, outcome: Outcome) {
        let is_it = |backup: &&mut BackupMetadata| {
            (&backup.name, backup.start_timestamp) == (&ended.name, ended.start_timestamp)
        };
        if let Some(backup) = self.0.backup.as_mut().filter(is_it) {
            backup.completed = true;
            backup.failed = outcome.failed;
            backup.backup_msg = outcome.message;
            backup.end_timestamp = Some(Time::now());
        }
    }

    /// Removes the metadata of a backup that has not started.
    pub fn forget_backup(&mut self, id: &BackupId) {
        if self.backup_of(id).is_some() {
            self.0.backup = None;
        }
    }

    fn backup_of(&mut self, id: &BackupId) -> Option<&mut BackupMetadata> {
        let backup = self.0.backup.as_mut()?;
        let is_it = backup.name == id.name && backup.start_timestamp == Some(id.started);
        is_it.then_some(backup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convert::backup::RequestedMode;

    fn start(name: &str) -> Start {
        Start {
            id: BackupId {
                name: name.into(),
                started: "2026-01-02T03:04:05Z".parse().unwrap(),
            },
            mode: RequestedMode::Pull,
            incremental: None,
            target_path: "/t".into(),
            skip_quiesce: false,
        }
    }

    #[test]
    fn a_backup_is_reported_from_its_begin_to_its_end() {
        let mut metadata = Metadata::new("u-1");
        let start = start("b");
        metadata.backup_began(&start);
        metadata.backup_quiesced(&start.id, Quiesced::Failed("no agent".into()));
        let running = metadata.backup().unwrap().clone();
        assert_eq!(
            (
                running.mode.as_str(),
                running.completed,
                running.end_timestamp
            ),
            ("Pull", false, None)
        );
        assert_eq!(
            (running.quiesce_status.as_str(), running.backup_msg.as_str()),
            ("Failed", "no agent")
        );
        metadata.backup_ended(&running, Outcome::default());
        let ended = metadata.backup().unwrap();
        assert!(ended.completed && !ended.failed && ended.end_timestamp.is_some());
        assert!(ended.backup_msg.is_empty());
    }

    #[test]
    fn another_backup_is_not_changed() {
        let mut metadata = Metadata::new("u-1");
        metadata.backup_began(&start("b"));
        let before = metadata.clone();
        let other = start("other");
        metadata.backup_quiesced(&other.id, Quiesced::Succeeded);
        metadata.forget_backup(&other.id);
        let ended = BackupMetadata {
            name: "other".into(),
            ..BackupMetadata::default()
        };
        metadata.backup_ended(&ended, Outcome::default());
        assert_eq!(metadata, before);
        metadata.forget_backup(&start("b").id);
        assert!(metadata.backup().is_none());
    }
}
