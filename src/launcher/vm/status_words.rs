//! libvirt's states (`virDomainState`: running, paused, shutoff, crashed, …) and reasons in
//! KubeVirt's words (docs/contract.md §7).

use domain::status::{LifeCycle, StateChangeReason as Reason};
use libvirt::{CrashedReason, DomainState, PausedReason, ShutdownReason, ShutoffReason};

/// `Status.Status` and `Status.Reason` when libvirt does not know the domain.
pub(in crate::launcher) const NONE: (LifeCycle, Reason) = (LifeCycle::NoState, Reason::NonExistent);

/// `Status.Status` and `Status.Reason` of a domain.
pub(in crate::launcher) fn words(state: DomainState) -> (LifeCycle, Reason) {
    match state {
        DomainState::NoState => (LifeCycle::NoState, Reason::Unknown),
        DomainState::Running(_) => (LifeCycle::Running, Reason::Unknown),
        DomainState::Blocked => (LifeCycle::Blocked, Reason::Unknown),
        DomainState::Paused(reason) => (LifeCycle::Paused, while_paused(reason)),
        DomainState::Shutdown(ShutdownReason::User) => (LifeCycle::ShuttingDown, Reason::User),
        DomainState::Shutdown(_) => (LifeCycle::ShuttingDown, Reason::Unknown),
        DomainState::Shutoff(reason) => (LifeCycle::Shutoff, while_off(reason)),
        DomainState::Crashed(CrashedReason::Panicked) => (LifeCycle::Crashed, Reason::Panicked),
        DomainState::Crashed(_) => (LifeCycle::Crashed, Reason::Unknown),
        DomainState::PmSuspended => (LifeCycle::PmSuspended, Reason::Unknown),
    }
}

/// Reasons of a paused domain (`VIR_DOMAIN_PAUSED_IOERROR` and others).
fn while_paused(reason: PausedReason) -> Reason {
    match reason {
        PausedReason::User => Reason::User,
        PausedReason::Migration => Reason::Migration,
        PausedReason::Save => Reason::Save,
        PausedReason::Dump => Reason::Dump,
        PausedReason::IoError => Reason::IoError,
        PausedReason::Watchdog => Reason::Watchdog,
        PausedReason::FromSnapshot => Reason::FromSnapshot,
        PausedReason::ShuttingDown => Reason::ShuttingDown,
        PausedReason::Snapshot => Reason::Snapshot,
        PausedReason::Crashed => Reason::Crashed,
        PausedReason::StartingUp => Reason::StartingUp,
        PausedReason::Postcopy => Reason::Postcopy,
        PausedReason::PostcopyFailed => Reason::PostcopyFailed,
        PausedReason::Unknown | PausedReason::ApiError | PausedReason::Other(_) => Reason::Unknown,
    }
}

/// Reasons of a domain that is off (`VIR_DOMAIN_SHUTOFF_CRASHED` and others).
fn while_off(reason: ShutoffReason) -> Reason {
    match reason {
        ShutoffReason::Shutdown => Reason::Shutdown,
        ShutoffReason::Destroyed => Reason::Destroyed,
        ShutoffReason::Crashed => Reason::Crashed,
        ShutoffReason::Migrated => Reason::Migrated,
        ShutoffReason::Saved => Reason::Saved,
        ShutoffReason::Failed => Reason::Failed,
        ShutoffReason::FromSnapshot => Reason::FromSnapshot,
        ShutoffReason::Unknown | ShutoffReason::Daemon | ShutoffReason::Other(_) => Reason::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests each state, by libvirt's number, with each documented reason and one more.
    #[test]
    fn every_state_and_reason_has_its_word() {
        let unknown = "Unknown";
        let paused = [
            unknown,
            "User",
            "Migration",
            "Save",
            "Dump",
            "IOError",
            "Watchdog",
            "FromSnapshot",
            "ShuttingDown",
            "Snapshot",
            "Crashed",
            "StartingUp",
            "Postcopy",
            "PostcopyFailed",
            unknown,
            unknown,
        ];
        let off = [
            unknown,
            "Shutdown",
            "Destroyed",
            "Crashed",
            "Migrated",
            "Saved",
            "Failed",
            "FromSnapshot",
            unknown,
            unknown,
        ];
        let tables: [(&str, &[&str]); 9] = [
            ("NoState", &[unknown; 2]),
            ("Running", &[unknown; 13]),
            ("Blocked", &[unknown; 2]),
            ("Paused", &paused),
            ("ShuttingDown", &[unknown, "User", unknown]),
            ("Shutoff", &off),
            ("Crashed", &[unknown, "Panicked", unknown]),
            ("PMSuspended", &[unknown; 2]),
            ("NoState", &[unknown; 2]),
        ];
        for (state, (status, reasons)) in (0..).zip(tables) {
            for (reason, word) in (0..).zip(reasons) {
                let seen = DomainState::from_raw(state, reason);
                let (life_cycle, why) = words(seen);
                assert_eq!(
                    (life_cycle.as_str(), why.as_str()),
                    (status, *word),
                    "{seen:?}"
                );
            }
        }
    }
}
