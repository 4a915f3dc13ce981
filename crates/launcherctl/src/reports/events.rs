//! A launcher's events: of its domain, and those that virt-handler would record in Kubernetes.

use serde_json::Value;

use client::problems::crash_cause;
use domain::Domain;
use domain::object::DomainStatus;
use domain::status::StateChangeReason;

/// Limit of events waiting to be printed; beyond that the launcher waits and queues its own.
pub const MAX_QUEUED: usize = 256;

/// What a launcher sends to virt-handler's notify socket.
#[derive(Debug, Clone)]
pub enum LauncherEvent {
    /// Of the domain; `None` if the event has none.
    Domain(Option<Box<Domain>>),
    /// A Kubernetes event for the VMI.
    Kubernetes(Value),
}

impl LauncherEvent {
    /// The domain, if the event has one.
    pub fn domain(&self) -> Option<&Domain> {
        match self {
            Self::Domain(domain) => domain.as_deref(),
            Self::Kubernetes(_) => None,
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

    /// How the guest ended, if that was without a shutdown.
    pub fn crash(&self) -> Option<&'static str> {
        crash_cause(self.status()?)
    }

    /// Whether this is the last event: libvirt no longer knows the domain.
    pub fn is_final(&self) -> bool {
        let domain = self.domain();
        domain.is_some_and(|it| it.meta.deletion_timestamp.is_some())
    }
}
