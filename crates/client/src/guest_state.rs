//! What a guest does, from the Domain document and its launcher.

use super::Client;
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason};

/// A guest's state for a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestState {
    /// There is no domain.
    Absent,
    /// The domain no longer has a QEMU.
    Ended,
    /// Paused until somebody resumes it.
    Paused,
    /// Running, or paused and resumed by itself.
    Running,
}

impl GuestState {
    #[must_use]
    pub fn of(domain: Option<&Domain>) -> Self {
        use StateChangeReason as Reason;
        let Some(status) = domain.map(|domain| &domain.status) else {
            return Self::Absent;
        };
        match (&status.status, &status.reason) {
            (state, _) if state.is_down() => Self::Ended,
            // The launcher, libvirt or QEMU resumes the guest.
            (
                LifeCycle::Paused,
                Reason::Migration
                | Reason::Save
                | Reason::Dump
                | Reason::FromSnapshot
                | Reason::ShuttingDown
                | Reason::Snapshot
                | Reason::StartingUp
                | Reason::Postcopy,
            ) => Self::Running,
            (LifeCycle::Paused, _) => Self::Paused,
            _ => Self::Running,
        }
    }

    /// Whether there is a QEMU.
    #[must_use]
    pub fn has_process(self) -> bool {
        matches!(self, Self::Paused | Self::Running)
    }
}

/// Whether the domain has arrived by a migration, as virt-handler decides it: the guest runs, or
/// its user has paused it, and libvirt is done.
#[must_use]
pub fn has_arrived(domain: &Domain) -> bool {
    let is_there = match domain.status.status {
        LifeCycle::Running => true,
        LifeCycle::Paused => domain.status.reason != StateChangeReason::Migration,
        _ => false,
    };
    let migration = domain.spec.metadata.kube_virt.migration.as_ref();
    is_there && migration.is_some_and(|it| it.end_timestamp.is_some())
}

/// Whether a launcher that shows no domain is starting one, or has just started it. False for
/// KubeVirt's launcher, which does not tell.
pub async fn is_starting(client: &Client) -> bool {
    match client.debug().await {
        Ok(launcher) => becomes_visible(&launcher.phase),
        // libvirt, which the launcher asks too, is busy with the start.
        Err(error) => error.is_in_progress(),
    }
}

/// A launcher shows the domain when its start has ended, and a moment later to its watchers.
fn becomes_visible(phase: &str) -> bool {
    matches!(phase, "Preparing" | "Starting" | "Running") || phase.starts_with("Paused")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(domain: Value) -> Domain {
        serde_json::from_value(domain).unwrap()
    }

    fn domain(status: &str, reason: &str) -> Domain {
        read(json!({"Status": {"Status": status, "Reason": reason}}))
    }

    #[test]
    fn a_state_that_is_not_known_counts_as_running() {
        let of = |status| GuestState::of(Some(&domain(status, "Unknown")));
        assert_eq!(of("Blocked"), GuestState::Running);
        assert_eq!(of("ShuttingDown"), GuestState::Running);
        assert_eq!(of("Crashed"), GuestState::Ended);
        assert_eq!(of("Paused"), GuestState::Paused);
        assert_eq!(GuestState::of(None), GuestState::Absent);
    }

    #[test]
    fn a_start_is_known_by_the_launchers_phase() {
        for phase in ["Preparing", "Starting", "Running", "Paused(User)"] {
            assert!(becomes_visible(phase), "{phase}");
        }
        for phase in ["Absent", "Ended", "Gone", ""] {
            assert!(!becomes_visible(phase), "{phase}");
        }
    }
}
