//! libvirt's states and reasons in KubeVirt's words (docs/contract.md §7).

use libvirt::{State, paused, shutoff};

/// `Status.Status` and `Status.Reason` once libvirt does not know the domain (any more).
pub(super) const NONE: (&str, &str) = ("NoState", "NonExistent");

/// `Status.Status` and `Status.Reason` of a domain.
pub(super) fn words(state: State, reason: i32) -> (&'static str, &'static str) {
    match state {
        State::NoState => ("NoState", "Unknown"),
        State::Running => ("Running", "Unknown"),
        State::Blocked => ("Blocked", "Unknown"),
        State::Paused => ("Paused", while_paused(reason)),
        // virDomainShutdownReason: asked for by the user, or not known.
        State::Shutdown => ("ShuttingDown", if reason == 1 { "User" } else { "Unknown" }),
        State::Shutoff => ("Shutoff", while_off(reason)),
        // virDomainCrashedReason.
        State::Crashed => ("Crashed", if reason == 1 { "Panicked" } else { "Unknown" }),
        State::PmSuspended => ("PMSuspended", "Unknown"),
    }
}

fn while_paused(reason: i32) -> &'static str {
    match reason {
        paused::USER => "User",
        paused::MIGRATION => "Migration",
        paused::SAVE => "Save",
        paused::DUMP => "Dump",
        paused::IO_ERROR => "IOError",
        paused::WATCHDOG => "Watchdog",
        paused::FROM_SNAPSHOT => "FromSnapshot",
        paused::SHUTTING_DOWN => "ShuttingDown",
        paused::SNAPSHOT => "Snapshot",
        paused::CRASHED => "Crashed",
        paused::STARTING_UP => "StartingUp",
        paused::POSTCOPY => "Postcopy",
        paused::POSTCOPY_FAILED => "PostcopyFailed",
        _ => "Unknown",
    }
}

fn while_off(reason: i32) -> &'static str {
    match reason {
        shutoff::SHUTDOWN => "Shutdown",
        shutoff::DESTROYED => "Destroyed",
        shutoff::CRASHED => "Crashed",
        shutoff::MIGRATED => "Migrated",
        shutoff::SAVED => "Saved",
        shutoff::FAILED => "Failed",
        shutoff::FROM_SNAPSHOT => "FromSnapshot",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state with every reason that libvirt documents, and one more.
    #[test]
    fn every_state_and_reason_has_its_word() {
        let off = [
            "Unknown",
            "Shutdown",
            "Destroyed",
            "Crashed",
            "Migrated",
            "Saved",
            "Failed",
            "FromSnapshot",
            "Unknown",
            "Unknown",
        ];
        for (reason, word) in (0..).zip(off) {
            assert_eq!(words(State::Shutoff, reason), ("Shutoff", word));
        }
        let paused = [
            "Unknown",
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
            "Unknown",
            "Unknown",
        ];
        for (reason, word) in (0..).zip(paused) {
            assert_eq!(words(State::Paused, reason), ("Paused", word));
        }
        for (reason, word) in [(0, "Unknown"), (1, "User"), (2, "Unknown")] {
            assert_eq!(words(State::Shutdown, reason), ("ShuttingDown", word));
        }
        for (reason, word) in [(0, "Unknown"), (1, "Panicked"), (2, "Unknown")] {
            assert_eq!(words(State::Crashed, reason), ("Crashed", word));
        }
        for reason in 0..12 {
            assert_eq!(words(State::Running, reason), ("Running", "Unknown"));
            assert_eq!(words(State::Blocked, reason), ("Blocked", "Unknown"));
            assert_eq!(
                words(State::PmSuspended, reason),
                ("PMSuspended", "Unknown")
            );
            assert_eq!(words(State::NoState, reason), ("NoState", "Unknown"));
        }
    }
}
