//! A domain's state, as `virDomainGetState` has it.

/// `virDomainState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// None is known (also any state that a newer libvirt adds).
    NoState,
    /// vCPUs run.
    Running,
    /// Waits for a resource.
    Blocked,
    /// Paused; the reason is one of [`paused`].
    Paused,
    /// The guest is shutting down.
    Shutdown,
    /// Not running; the reason is one of [`shutoff`].
    Shutoff,
    /// Crashed.
    Crashed,
    /// Suspended by the guest's power management.
    PmSuspended,
}

impl State {
    pub(super) fn from_raw(raw: i32) -> Self {
        match raw {
            1 => Self::Running,
            2 => Self::Blocked,
            3 => Self::Paused,
            4 => Self::Shutdown,
            5 => Self::Shutoff,
            6 => Self::Crashed,
            7 => Self::PmSuspended,
            _ => Self::NoState,
        }
    }

    /// There is no QEMU process (any more).
    pub fn is_down(self) -> bool {
        matches!(
            self,
            Self::NoState | Self::Shutdown | Self::Shutoff | Self::Crashed
        )
    }
}

/// Why a domain runs (`virDomainRunningReason`).
#[allow(missing_docs, reason = "named as in libvirt/libvirt-domain.h")]
pub mod running {
    pub const POSTCOPY: i32 = 10;
    pub const POSTCOPY_FAILED: i32 = 11;
}

/// Why a domain is paused (`virDomainPausedReason`).
#[allow(missing_docs, reason = "named as in libvirt/libvirt-domain.h")]
pub mod paused {
    pub const UNKNOWN: i32 = 0;
    pub const USER: i32 = 1;
    pub const MIGRATION: i32 = 2;
    pub const SAVE: i32 = 3;
    pub const DUMP: i32 = 4;
    pub const IO_ERROR: i32 = 5;
    pub const WATCHDOG: i32 = 6;
    pub const FROM_SNAPSHOT: i32 = 7;
    pub const SHUTTING_DOWN: i32 = 8;
    pub const SNAPSHOT: i32 = 9;
    pub const CRASHED: i32 = 10;
    pub const STARTING_UP: i32 = 11;
    pub const POSTCOPY: i32 = 12;
    pub const POSTCOPY_FAILED: i32 = 13;
    pub const API_ERROR: i32 = 14;
}

/// Why a domain is shut off (`virDomainShutoffReason`).
#[allow(missing_docs, reason = "named as in libvirt/libvirt-domain.h")]
pub mod shutoff {
    pub const UNKNOWN: i32 = 0;
    pub const SHUTDOWN: i32 = 1;
    pub const DESTROYED: i32 = 2;
    pub const CRASHED: i32 = 3;
    pub const MIGRATED: i32 = 4;
    pub const SAVED: i32 = 5;
    pub const FAILED: i32 = 6;
    pub const FROM_SNAPSHOT: i32 = 7;
    pub const DAEMON: i32 = 8;
}
