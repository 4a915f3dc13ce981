//! Kubernetes events.

use prost::bytes::Bytes;
use serde_json::json;

/// `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// An event about our VMI. virt-handler refuses it when `uid` is not that of the VMI it knows by this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct K8sEvent {
    /// Namespace of the VMI.
    pub namespace: String,
    /// Name of the VMI.
    pub name: String,
    /// UID of the VMI.
    pub uid: String,
    /// How bad it is.
    pub severity: Severity,
    /// One word, such as `IOerror`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl K8sEvent {
    /// A `core/v1` Event, without the parts that virt-handler's recorder fills in.
    pub(super) fn to_json(&self) -> Bytes {
        let severity = match self.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let event = json!({
            "metadata": {},
            "involvedObject": {
                "kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1",
                "namespace": self.namespace, "name": self.name, "uid": self.uid,
            },
            "type": severity, "reason": self.reason, "message": self.message,
        });
        Bytes::from(event.to_string())
    }
}
