//! A guest's state, from Domain JSON, and whether it can do what a verb asks.

use serde_json::Value;

use crate::error::{TextError, fail, text_error};
use crate::json::{text_at, text_or_dash};

use client::Client;

/// The launcher has no domain.
pub fn no_domain() -> TextError {
    text_error!(
        "there is no guest (yet): launcherctl timeline shows how far its start is, launcherctl logs what it waits for"
    )
}

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
    /// From Domain JSON.
    pub fn of(domain: Option<&Value>) -> Self {
        let Some(domain) = domain else {
            return Self::Absent;
        };
        let part = |pointer| text_at(domain, pointer);
        match (part("/Status/Status"), part("/Status/Reason")) {
            ("Shutoff" | "Crashed" | "NoState", _) => Self::Ended,
            // The launcher, libvirt or QEMU resumes the guest.
            (
                "Paused",
                "Migration" | "Save" | "Dump" | "FromSnapshot" | "ShuttingDown" | "Snapshot"
                | "StartingUp" | "Postcopy",
            ) => Self::Running,
            ("Paused", _) => Self::Paused,
            _ => Self::Running,
        }
    }

    /// Whether there is a QEMU.
    pub fn has_process(self) -> bool {
        matches!(self, Self::Paused | Self::Running)
    }
}

/// Status and reason of Domain JSON, such as `Paused (User)`, without KubeVirt's reason `Unknown`.
pub fn status_text(domain: &Value) -> String {
    let status = text_or_dash(domain, "/Status/Status");
    match known_reason(domain) {
        Some(reason) => format!("{status} ({reason})"),
        None => status.to_owned(),
    }
}

/// The reason of the domain's status, if known.
pub fn known_reason(domain: &Value) -> Option<&str> {
    match text_at(domain, "/Status/Reason") {
        "" | "Unknown" => None,
        reason => Some(reason),
    }
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

/// Whether the domain is migrating, in or out.
pub fn is_migrating(domain: Option<&Value>) -> bool {
    let migration = domain.and_then(|it| it.pointer("/Spec/Metadata/KubeVirt/Migration"));
    let has = |time| migration.is_some_and(|it| !text_at(it, time).is_empty());
    has("/StartTimestamp") && !has("/EndTimestamp")
}

/// Refuses what only a running guest can do, with the remedy.
///
/// # Errors
/// There is no guest, or it is paused.
pub fn check_runs(domain: Option<&Value>) -> Result<(), TextError> {
    let part = |pointer| domain.map_or("", |domain| text_at(domain, pointer));
    let name = ["/ObjectMeta/namespace", "/ObjectMeta/name"]
        .map(part)
        .join("/");
    match GuestState::of(domain) {
        GuestState::Running => Ok(()),
        GuestState::Absent => Err(no_domain()),
        GuestState::Ended => {
            fail!("the guest of {name} has ended; only a new start of the VM brings it back")
        }
        GuestState::Paused => {
            let remedy = remedy(part("/Status/Reason"));
            fail!("the guest of {name} is paused: {remedy}")
        }
    }
}

/// How to resume a paused guest.
pub fn remedy(reason: &str) -> &'static str {
    match reason {
        "IOError" => {
            "one of its disks cannot be read or written, as when the file system of its image is full (df): make space, then launcherctl unpause"
        }
        "Crashed" => "its kernel has crashed: launcherctl reset, then launcherctl unpause",
        "Watchdog" => {
            "its watchdog was not reset in time: launcherctl reset, then launcherctl unpause"
        }
        _ => "launcherctl unpause first",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn domain(status: &str, reason: &str) -> Value {
        json!({"ObjectMeta": {"namespace": "default", "name": "web"},
            "Status": {"Status": status, "Reason": reason}})
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
    fn a_reason_that_says_nothing_is_left_out() {
        assert_eq!(status_text(&domain("Paused", "User")), "Paused (User)");
        assert_eq!(status_text(&domain("Running", "Unknown")), "Running");
        assert_eq!(status_text(&domain("Running", "")), "Running");
        assert_eq!(status_text(&Value::Null), "-");
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

    #[test]
    fn a_migration_is_under_way_until_it_has_an_end() {
        let of = |migration: Value| {
            let domain = json!({"Spec": {"Metadata": {"KubeVirt": {"Migration": migration}}}});
            is_migrating(Some(&domain))
        };
        let start = "2026-01-01T00:00:00Z";
        assert!(of(json!({"StartTimestamp": start})));
        assert!(!of(json!({"StartTimestamp": start, "EndTimestamp": start})));
        assert!(!of(Value::Null) && !is_migrating(None));
    }

    #[test]
    fn a_guest_that_cannot_do_it_says_what_to_do_first() {
        let refusal = |status, reason| {
            let refused = check_runs(Some(&domain(status, reason)));
            refused.err().map(|error| error.to_string())
        };
        assert_eq!(refusal("Running", "Unknown"), None);
        // A memory dump: the guest continues after it.
        assert_eq!(refusal("Paused", "Dump"), None);
        assert_eq!(
            refusal("Paused", "User").as_deref(),
            Some("the guest of default/web is paused: launcherctl unpause first")
        );
        assert!(refusal("Paused", "IOError").is_some_and(|text| text.contains("df")));
        assert!(refusal("Shutoff", "Shutdown").is_some_and(|text| text.contains("has ended")));
        assert!(check_runs(None).is_err());
    }
}
