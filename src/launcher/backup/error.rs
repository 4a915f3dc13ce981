use std::path::PathBuf;

use convert::backup::{BackupPlanError, BackupRequestError, RedefineError};
use domain::metadata::Time;

/// Why a backup or a checkpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The VMI's status says that no disk tracks changed blocks.
    #[error("Backup failed ChangedBlockTracking is not enabled")]
    NotTracked,
    /// Like [`Self::NotTracked`], for a checkpoint that is to be redefined.
    #[error("Redefine checkpoint failed: ChangedBlockTracking is not enabled")]
    CheckpointNotTracked,
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] BackupRequestError),
    /// Nothing can be backed up.
    #[error(transparent)]
    Plan(#[from] BackupPlanError),
    #[error(transparent)]
    Redefine(#[from] RedefineError),
    /// This backup has already ended.
    #[error(
        "backup {name} was already executed: it finished at {}, completed: {completed}; it is not \
         made a second time",
        .finished.0
    )]
    Ended {
        name: String,
        finished: Time,
        completed: bool,
    },
    /// Another backup runs.
    #[error("backup {0} is in progress; send it again when that has ended")]
    OtherRuns(String),
    /// The backup to abort or to read does not run.
    #[error("backup {0} is not in progress")]
    NotRunning(String),
    /// QEMU's answer is unreadable.
    #[error("QEMU's list of jobs cannot be read")]
    Jobs(#[source] serde_json::Error),
    /// libvirt runs another job or none.
    #[error("libvirt has no backup of the domain that could be aborted")]
    NoJob,
    /// QEMU's NBD server is missing.
    #[error("cannot initialize backup tunnel: {} cannot be used", .0.display())]
    NotServed(PathBuf, #[source] std::io::Error),
}

impl BackupError {
    /// `checkpoint_invalid` in the answer to a redefinition: the next backup has to be a full one.
    pub(in crate::launcher) fn is_checkpoint_invalid(&self) -> bool {
        matches!(self, Self::Redefine(error) if error.is_checkpoint_invalid())
    }
}
