use client::CallError;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
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
