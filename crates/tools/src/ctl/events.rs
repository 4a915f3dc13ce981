//! Events of a launcher: of its domain, and those that virt-handler would record in Kubernetes.

use serde_json::{Value, json};

use super::json::{copy_at, text_at, text_or_dash};

/// Events that wait to be printed; after that the launcher has to wait, and queues its own.
pub const MAX_QUEUED: usize = 256;

/// What a launcher sends to virt-handler's notify socket.
#[derive(Debug, Clone)]
pub enum LauncherEvent {
    /// A domain event.
    Domain {
        /// `ADDED`, `MODIFIED`, …
        kind: String,
        /// The Domain JSON; null if the event has none.
        domain: Value,
        /// A status, with errors only.
        status: Value,
    },
    /// A Kubernetes event for the VMI.
    Kubernetes(Value),
}

impl LauncherEvent {
    /// `Status.Status` of a domain event.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Domain { domain, .. } => domain.pointer("/Status/Status").and_then(Value::as_str),
            Self::Kubernetes(_) => None,
        }
    }

    /// Whether this is the last event: libvirt no longer knows the domain.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Domain { domain, .. } if domain.pointer("/ObjectMeta/deletionTimestamp").is_some_and(|at| !at.is_null()))
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Domain {
                kind,
                domain,
                status,
            } => json!({"eventType": kind, "domain": domain, "status": status}),
            Self::Kubernetes(event) => json!({"event": event}),
        }
    }

    /// What [`Self::to_json`] wrote.
    #[must_use]
    pub fn from_json(value: &Value) -> Self {
        if let Some(event) = value.get("event") {
            return Self::Kubernetes(event.clone());
        }
        Self::Domain {
            kind: text_at(value, "/eventType").to_owned(),
            domain: copy_at(value, "/domain"),
            status: copy_at(value, "/status"),
        }
    }

    /// A line for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Domain { kind, domain, .. } => {
                let last = if self.is_final() { "  (gone)" } else { "" };
                format!(
                    "{kind:<9} {}  {} ({}){last}",
                    text_or_dash(domain, "/Spec/Name"),
                    text_or_dash(domain, "/Status/Status"),
                    text_or_dash(domain, "/Status/Reason")
                )
            }
            Self::Kubernetes(event) => {
                format!(
                    "EVENT     {}: {}",
                    text_or_dash(event, "/reason"),
                    text_or_dash(event, "/message")
                )
            }
        }
    }
}
