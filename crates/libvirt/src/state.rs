//! A domain's state with its reason, as `virDomainGetState` returns both.

use super::c_enum::c_enum;

/// `virDomainState` with the reason that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    /// libvirt does not know, or the state is a newer libvirt's.
    NoState,
    Running(RunningReason),
    /// Waits for a resource.
    Blocked,
    Paused(PausedReason),
    /// The guest shuts down.
    Shutdown(ShutdownReason),
    Shutoff(ShutoffReason),
    Crashed(CrashedReason),
    /// The guest's power management has suspended it.
    PmSuspended,
}

impl DomainState {
    /// From the two numbers that `virDomainGetState` returns.
    pub fn from_raw(state: i32, reason: i32) -> Self {
        match state {
            1 => Self::Running(RunningReason::from_raw(reason)),
            2 => Self::Blocked,
            3 => Self::Paused(PausedReason::from_raw(reason)),
            4 => Self::Shutdown(ShutdownReason::from_raw(reason)),
            5 => Self::Shutoff(ShutoffReason::from_raw(reason)),
            6 => Self::Crashed(CrashedReason::from_raw(reason)),
            7 => Self::PmSuspended,
            _ => Self::NoState,
        }
    }

    pub fn is_running(self) -> bool {
        matches!(self, Self::Running(_))
    }

    pub fn is_paused(self) -> bool {
        matches!(self, Self::Paused(_))
    }

    /// There is no QEMU process (any more).
    pub fn is_down(self) -> bool {
        matches!(
            self,
            Self::NoState | Self::Shutdown(_) | Self::Shutoff(_) | Self::Crashed(_)
        )
    }
}

c_enum! {
    /// `virDomainRunningReason`.
    pub enum RunningReason: i32 {
        Unknown = 0,
        Booted = 1,
        Migrated = 2,
        Restored = 3,
        FromSnapshot = 4,
        Unpaused = 5,
        MigrationCanceled = 6,
        SaveCanceled = 7,
        Wakeup = 8,
        Crashed = 9,
        Postcopy = 10,
        PostcopyFailed = 11,
    }
}

c_enum! {
    /// `virDomainPausedReason`.
    pub enum PausedReason: i32 {
        Unknown = 0,
        User = 1,
        Migration = 2,
        Save = 3,
        Dump = 4,
        IoError = 5,
        Watchdog = 6,
        FromSnapshot = 7,
        ShuttingDown = 8,
        Snapshot = 9,
        Crashed = 10,
        StartingUp = 11,
        Postcopy = 12,
        PostcopyFailed = 13,
        ApiError = 14,
    }
}

c_enum! {
    /// `virDomainShutdownReason`.
    pub enum ShutdownReason: i32 {
        Unknown = 0,
        User = 1,
    }
}

c_enum! {
    /// `virDomainShutoffReason`.
    pub enum ShutoffReason: i32 {
        Unknown = 0,
        Shutdown = 1,
        Destroyed = 2,
        Crashed = 3,
        Migrated = 4,
        Saved = 5,
        Failed = 6,
        FromSnapshot = 7,
        Daemon = 8,
    }
}

c_enum! {
    /// `virDomainCrashedReason`.
    pub enum CrashedReason: i32 {
        Unknown = 0,
        Panicked = 1,
    }
}
