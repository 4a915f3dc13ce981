//! libvirt's states and reasons in KubeVirt's words (docs/contract.md §7).

use libvirt::{CrashedReason, DomainState, PausedReason, ShutdownReason, ShutoffReason};

/// `Status.Status` and `Status.Reason` once libvirt does not know the domain (any more).
pub(in crate::launcher) const NONE: (&str, &str) = ("NoState", "NonExistent");

/// `Status.Status` and `Status.Reason` of a domain.
pub(in crate::launcher) fn words(state: DomainState) -> (&'static str, &'static str) {
    match state {
        DomainState::NoState => ("NoState", "Unknown"),
        DomainState::Running(_) => ("Running", "Unknown"),
        DomainState::Blocked => ("Blocked", "Unknown"),
        DomainState::Paused(reason) => ("Paused", while_paused(reason)),
        DomainState::Shutdown(ShutdownReason::User) => ("ShuttingDown", "User"),
        DomainState::Shutdown(_) => ("ShuttingDown", "Unknown"),
        DomainState::Shutoff(reason) => ("Shutoff", while_off(reason)),
        DomainState::Crashed(CrashedReason::Panicked) => ("Crashed", "Panicked"),
        DomainState::Crashed(_) => ("Crashed", "Unknown"),
        DomainState::PmSuspended => ("PMSuspended", "Unknown"),
    }
}

fn while_paused(reason: PausedReason) -> &'static str {
    match reason {
        PausedReason::User => "User",
        PausedReason::Migration => "Migration",
        PausedReason::Save => "Save",
        PausedReason::Dump => "Dump",
        PausedReason::IoError => "IOError",
        PausedReason::Watchdog => "Watchdog",
        PausedReason::FromSnapshot => "FromSnapshot",
        PausedReason::ShuttingDown => "ShuttingDown",
        PausedReason::Snapshot => "Snapshot",
        PausedReason::Crashed => "Crashed",
        PausedReason::StartingUp => "StartingUp",
        PausedReason::Postcopy => "Postcopy",
        PausedReason::PostcopyFailed => "PostcopyFailed",
        PausedReason::Unknown | PausedReason::ApiError | PausedReason::Other(_) => "Unknown",
    }
}

fn while_off(reason: ShutoffReason) -> &'static str {
    match reason {
        ShutoffReason::Shutdown => "Shutdown",
        ShutoffReason::Destroyed => "Destroyed",
        ShutoffReason::Crashed => "Crashed",
        ShutoffReason::Migrated => "Migrated",
        ShutoffReason::Saved => "Saved",
        ShutoffReason::Failed => "Failed",
        ShutoffReason::FromSnapshot => "FromSnapshot",
        ShutoffReason::Unknown | ShutoffReason::Daemon | ShutoffReason::Other(_) => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state, by libvirt's number, with each reason that libvirt documents and one more.
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
                assert_eq!(words(seen), (status, *word), "{seen:?}");
            }
        }
    }
}
