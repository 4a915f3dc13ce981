use std::path::PathBuf;

use client::CallError;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no guest.
    #[error("no guest runs, so there is nothing to back up; with the guest down, copy its images")]
    NoGuest,
    /// No disk has an overlay.
    #[error(
        "no disk of the VM tracks its changed blocks, so nothing can be backed up; start it with launcherctl run --track-changes, which tracks claims, data volumes and host disks. In a cluster, enable changed block tracking for the VM"
    )]
    NotTracked,
    /// The launcher makes one at a time.
    #[error(
        "another backup of this VM, begun at {0}, is in progress; make this one when that has ended (launcherctl domain shows it under Backup)"
    )]
    InProgress(String),
    /// The path is not a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// No earlier backup to build on.
    #[error(
        "{directory} has no complete backup of this VM to build on; make one without --incremental first",
        directory = .0.display()
    )]
    NoParent(PathBuf),
    /// No backup has this checkpoint.
    #[error("{directory} has no backup {name:?} of this VM; it has {known}", directory = directory.display())]
    UnknownCheckpoint {
        /// The searched directory.
        directory: PathBuf,
        name: String,
        /// The existing ones.
        known: String,
    },
    /// A disk was plugged in since.
    #[error(
        "volume {volume:?} is not in the backup {parent}; make one without --incremental, which has all volumes"
    )]
    NewVolume {
        volume: String,
        /// The last backup.
        parent: String,
    },
    /// A backup that this one needs is missing.
    #[error(
        "the incremental backup cannot build on {parent}: {path} {problem}; put it back, or make a full backup, without --incremental",
        path = path.display()
    )]
    BrokenChain {
        /// The backup below the incremental one.
        parent: String,
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// libvirt does not start an incremental backup.
    #[error(
        "the incremental backup has not begun. If the VM was started anew or migrated since {0}, make a full backup, without --incremental. The launcher says"
    )]
    Incremental(String, #[source] CallError),
    /// QEMU or libvirt failed.
    #[error("the backup has failed, and its files are removed: {0}")]
    Failed(String),
    /// By a signal.
    #[error("the backup is cancelled, and its files are removed; the guest runs on")]
    Cancelled,
    /// By a second signal.
    #[error(
        "the backup may go on without launcherctl; what it writes into {directory} is not complete: remove it when launcherctl domain says under Backup that it has ended",
        directory = .0.display()
    )]
    Left(PathBuf),
    /// The guest or the launcher ended.
    #[error(
        "the guest or its launcher has ended during the backup; {directory} is not complete: remove it, and make another backup when the VM runs again",
        directory = .0.display()
    )]
    GuestEnded(PathBuf),
    /// The launcher's report is unreadable.
    #[error("the launcher's list of the backup's volumes is not valid JSON")]
    Volumes(#[source] serde_json::Error),
    /// An image cannot be put on top of the previous one.
    #[error("the incremental backup cannot be put on top of the last one")]
    Chain(#[source] os::command::CommandError),
    /// The machine's clock is out of range.
    #[error("the machine's clock has a time that a backup cannot have")]
    Clock(#[source] jiff::Error),
}
