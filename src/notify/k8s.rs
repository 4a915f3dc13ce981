//! Kubernetes events.

use prost::bytes::Bytes;
use serde_json::json;

/// A warning about our VMI. virt-handler refuses a `uid` other than that of the VMI it knows by this
/// name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct K8sEvent {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// One word, such as `IOerror`.
    pub reason: &'static str,
    pub message: String,
}

impl K8sEvent {
    /// A `core/v1` Event, without the parts that virt-handler's recorder fills in.
    pub(super) fn to_json(&self) -> Bytes {
        let event = json!({
            "metadata": {},
            "involvedObject": {
                "kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1",
                "namespace": self.namespace, "name": self.name, "uid": self.uid,
            },
            "type": "Warning", "reason": self.reason, "message": self.message,
        });
        Bytes::from(event.to_string())
    }
}
