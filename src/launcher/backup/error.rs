//! Why a backup, or a checkpoint, cannot be made.

use std::path::PathBuf;

use convert::backup::{BackupPlanError, BackupRequestError, RedefineError};

/// An error of a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The VMI's status says that its disks do not track changed blocks.
    #[error("Backup failed ChangedBlockTracking is not enabled")]
    NotTracked,
    /// The same, for a checkpoint.
    #[error("Redefine checkpoint failed: ChangedBlockTracking is not enabled")]
    CheckpointNotTracked,
    /// The request cannot be used.
    #[error(transparent)]
    Request(#[from] BackupRequestError),
    /// There is nothing to back up.
    #[error(transparent)]
    Plan(#[from] BackupPlanError),
    /// A checkpoint cannot be redefined.
    #[error(transparent)]
    Redefine(#[from] RedefineError),
    /// It was made already.
    #[error("backup {0} has ended already; it is not made a second time")]
    Ended(String),
    /// Another one runs.
    #[error("backup {0} is in progress; send it again when that has ended")]
    OtherRuns(String),
    /// There is none to end or to read.
    #[error("backup {0} is not in progress")]
    NotRunning(String),
    /// QEMU's answer cannot be used.
    #[error("QEMU's list of jobs cannot be read")]
    Jobs(#[source] serde_json::Error),
    /// libvirt does something else, or nothing.
    #[error("libvirt has no backup of the domain that could be aborted")]
    NoJob,
    /// QEMU's NBD server is not there.
    #[error("cannot initialize backup tunnel: {} cannot be used", .0.display())]
    NotServed(PathBuf, #[source] std::io::Error),
}

impl BackupError {
    /// The next backup has to be a full one.
    pub(in crate::launcher) fn is_checkpoint_invalid(&self) -> bool {
        matches!(self, Self::Redefine(error) if error.is_checkpoint_invalid())
    }
}
