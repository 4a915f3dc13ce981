//! A launcher's events: of its domain, and those that virt-handler would record in Kubernetes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::text_at;

/// Limit of events waiting to be printed; beyond that the launcher waits and queues its own.
pub const MAX_QUEUED: usize = 256;

/// What a launcher sends to virt-handler's notify socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LauncherEvent {
    /// A domain event.
    Domain {
        /// `ADDED`, `MODIFIED`, …
        #[serde(rename = "eventType")]
        kind: String,
        /// The Domain JSON; null if the event has none.
        domain: Value,
        /// An error's status.
        status: Value,
    },
    /// A Kubernetes event for the VMI.
    Kubernetes { event: Value },
}

impl LauncherEvent {
    /// The Domain JSON; null if the event has none.
    fn domain(&self) -> &Value {
        match self {
            Self::Domain { domain, .. } => domain,
            Self::Kubernetes { .. } => &Value::Null,
        }
    }

    /// `Status.Status` of a domain event.
    pub fn state(&self) -> Option<&str> {
        self.domain().pointer("/Status/Status")?.as_str()
    }

    fn reason(&self) -> &str {
        text_at(self.domain(), "/Status/Reason")
    }

    /// Whether the guest has left by a migration.
    pub fn has_left(&self) -> bool {
        self.reason() == "Migrated"
    }

    /// Whether the guest has arrived by a migration.
    pub fn has_arrived(&self) -> bool {
        has_arrived(self.domain())
    }

    /// Whether the guest ended without a shutdown: QEMU was killed or crashed, or the guest
    /// panicked.
    pub fn is_crash(&self) -> bool {
        match self.state() {
            Some("Crashed") => true,
            Some("Shutoff") => matches!(self.reason(), "Crashed" | "Failed"),
            _ => false,
        }
    }

    /// Whether the guest's kernel has panicked, now or before.
    pub fn is_panic(&self) -> bool {
        match self {
            Self::Domain { domain, .. } => {
                let count = domain.pointer("/Status/PanicCount");
                self.state() == Some("Crashed") || count.and_then(Value::as_u64) > Some(0)
            }
            Self::Kubernetes { event } => text_at(event, "/reason") == "GuestPanicked",
        }
    }

    /// Whether the guest runs without KVM.
    pub fn is_emulated(&self) -> bool {
        text_at(self.domain(), "/Spec/Type") == "qemu"
    }

    /// Whether this is the last event: libvirt no longer knows the domain.
    pub fn is_final(&self) -> bool {
        let deleted = self.domain().pointer("/ObjectMeta/deletionTimestamp");
        deleted.is_some_and(|at| !at.is_null())
    }
}

/// Whether the domain has arrived by a migration, as virt-handler decides it: the guest runs, or
/// its user has paused it, and libvirt is done.
pub fn has_arrived(domain: &Value) -> bool {
    let is_there = match text_at(domain, "/Status/Status") {
        "Running" => true,
        "Paused" => text_at(domain, "/Status/Reason") != "Migration",
        _ => false,
    };
    let ended = domain.pointer("/Spec/Metadata/KubeVirt/Migration/EndTimestamp");
    is_there && ended.is_some_and(|end| !end.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_domain(domain: Value) -> LauncherEvent {
        LauncherEvent::Domain {
            kind: "MODIFIED".into(),
            domain,
            status: Value::Null,
        }
    }

    #[test]
    fn a_guest_that_was_not_shut_down_has_crashed() {
        let is_crash = |status: &str, reason: &str| {
            let domain = json!({"Status": {"Status": status, "Reason": reason}});
            of_domain(domain).is_crash()
        };
        assert!(is_crash("Shutoff", "Crashed") && is_crash("Shutoff", "Failed"));
        assert!(is_crash("Crashed", "Panicked"));
        assert!(!is_crash("Shutoff", "Shutdown") && !is_crash("Shutoff", "Destroyed"));
        assert!(!is_crash("Shutoff", "Migrated") && !is_crash("Running", "Unknown"));
    }

    #[test]
    fn a_panic_is_no_killed_qemu() {
        let is_panic = |status: Value| of_domain(json!({"Status": status})).is_panic();
        let crashed = json!({"Status": "Shutoff", "Reason": "Crashed"});
        assert!(!is_panic(crashed));
        let counted = json!({"Status": "Shutoff", "Reason": "Crashed", "PanicCount": 1});
        assert!(is_panic(counted));
        assert!(is_panic(json!({"Status": "Crashed", "Reason": "Panicked"})));
        assert!(
            LauncherEvent::Kubernetes {
                event: json!({"reason": "GuestPanicked"})
            }
            .is_panic()
        );
        assert!(
            !LauncherEvent::Kubernetes {
                event: json!({"reason": "IOerror"})
            }
            .is_panic()
        );
    }
}
