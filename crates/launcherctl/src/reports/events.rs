//! A launcher's events: of its domain, and those that virt-handler would record in Kubernetes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::text_at;
use client::has_arrived;
use domain::Domain;
use domain::object::DomainStatus;
use domain::status::{LifeCycle, StateChangeReason};

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
        /// `None` if the event has none.
        domain: Option<Box<Domain>>,
        /// An error's status.
        status: Value,
    },
    /// A Kubernetes event for the VMI.
    Kubernetes { event: Value },
}

impl LauncherEvent {
    /// The domain, if the event has one.
    pub fn domain(&self) -> Option<&Domain> {
        match self {
            Self::Domain { domain, .. } => domain.as_deref(),
            Self::Kubernetes { .. } => None,
        }
    }

    /// The status of the event's domain.
    pub fn status(&self) -> Option<&DomainStatus> {
        self.domain().map(|domain| &domain.status)
    }

    /// Whether the guest has left by a migration.
    pub fn has_left(&self) -> bool {
        let status = self.status();
        status.is_some_and(|it| it.reason == StateChangeReason::Migrated)
    }

    /// Whether the guest has arrived by a migration.
    pub fn has_arrived(&self) -> bool {
        self.domain().is_some_and(has_arrived)
    }

    /// Whether the guest ended without a shutdown: QEMU was killed or crashed, or the guest
    /// panicked.
    pub fn is_crash(&self) -> bool {
        use StateChangeReason::{Crashed, Failed};
        self.status().is_some_and(|it| match it.status {
            LifeCycle::Crashed => true,
            LifeCycle::Shutoff => matches!(it.reason, Crashed | Failed),
            _ => false,
        })
    }

    /// Whether the guest's kernel has panicked, now or before.
    pub fn is_panic(&self) -> bool {
        match self {
            Self::Domain { .. } => self
                .status()
                .is_some_and(|it| it.status == LifeCycle::Crashed || it.panic_count > 0),
            Self::Kubernetes { event } => text_at(event, "/reason") == "GuestPanicked",
        }
    }

    /// Whether this is the last event: libvirt no longer knows the domain.
    pub fn is_final(&self) -> bool {
        let domain = self.domain();
        domain.is_some_and(|it| it.meta.deletion_timestamp.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_domain(domain: Value) -> LauncherEvent {
        LauncherEvent::Domain {
            kind: "MODIFIED".into(),
            domain: Some(Box::new(crate::json::domain(domain))),
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
