//! A launcher's events: of its domain, and those that virt-handler would record in Kubernetes.

use serde_json::Value;

use client::has_arrived;
use domain::Domain;
use domain::object::DomainStatus;
use domain::status::{LifeCycle, StateChangeReason};

/// Limit of events waiting to be printed; beyond that the launcher waits and queues its own.
pub const MAX_QUEUED: usize = 256;

/// What a launcher sends to virt-handler's notify socket.
#[derive(Debug, Clone)]
pub enum LauncherEvent {
    /// A domain event.
    Domain {
        /// `None` if the event has none.
        domain: Option<Box<Domain>>,
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

    /// How the guest ended, if that was without a shutdown.
    pub fn crash(&self) -> Option<&'static str> {
        use StateChangeReason::{Crashed, Failed};
        let status = self.status()?;
        let has_panicked = status.status == LifeCycle::Crashed || status.panic_count > 0;
        let is_off = status.status == LifeCycle::Shutoff;
        match (
            has_panicked,
            is_off && matches!(status.reason, Crashed | Failed),
        ) {
            (_, false) if status.status != LifeCycle::Crashed => None,
            (true, _) => Some("its kernel has panicked"),
            (false, _) => {
                Some("its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed")
            }
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

    #[test]
    fn a_guest_that_was_not_shut_down_has_crashed() {
        let crash = |status: Value| {
            let domain = crate::json::domain(json!({"Status": status}));
            let domain = Some(Box::new(domain));
            let crash = LauncherEvent::Domain { domain }.crash();
            crash.map(|how| how.contains("panicked"))
        };
        let of = |status: &str, reason: &str| json!({"Status": status, "Reason": reason});
        assert_eq!(crash(of("Shutoff", "Crashed")), Some(false));
        assert_eq!(crash(of("Shutoff", "Failed")), Some(false));
        assert_eq!(crash(of("Crashed", "Panicked")), Some(true));
        let counted = json!({"Status": "Shutoff", "Reason": "Crashed", "PanicCount": 1});
        assert_eq!(crash(counted), Some(true));
        for (status, reason) in [
            ("Shutoff", "Shutdown"),
            ("Shutoff", "Destroyed"),
            ("Shutoff", "Migrated"),
            ("Running", "Unknown"),
        ] {
            assert_eq!(crash(of(status, reason)), None, "{reason}");
        }
    }
}
