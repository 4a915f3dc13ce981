//! KubeVirt's words for how a domain is, as virt-handler compares them (docs/contract.md §7).

use super::vocabulary::vocabulary;

vocabulary! {
/// `Status.Status`, KubeVirt's `LifeCycle`.
LifeCycle {
    NoState = "NoState",
    Running = "Running",
    Blocked = "Blocked",
    Paused = "Paused",
    ShuttingDown = "ShuttingDown",
    Shutoff = "Shutoff",
    Crashed = "Crashed",
    PmSuspended = "PMSuspended",
}
/// `Status.Reason`, KubeVirt's `StateChangeReason`.
StateChangeReason {
    Unknown = "Unknown",
    /// libvirt does not know the domain.
    NonExistent = "NonExistent",
    User = "User",
    Migration = "Migration",
    Save = "Save",
    Dump = "Dump",
    IoError = "IOError",
    Watchdog = "Watchdog",
    FromSnapshot = "FromSnapshot",
    ShuttingDown = "ShuttingDown",
    Snapshot = "Snapshot",
    Crashed = "Crashed",
    StartingUp = "StartingUp",
    Postcopy = "Postcopy",
    PostcopyFailed = "PostcopyFailed",
    Shutdown = "Shutdown",
    Destroyed = "Destroyed",
    Migrated = "Migrated",
    Saved = "Saved",
    Failed = "Failed",
    Panicked = "Panicked",
}
}

impl LifeCycle {
    /// The domain has no QEMU process (any more).
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self, Self::NoState | Self::Shutoff | Self::Crashed)
    }
}
