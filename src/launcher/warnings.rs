//! Kubernetes events (K8s events) of the VMI, sent through virt-handler: `IOerror` and
//! `GuestPanicked` by the reporter (`report`), `GuestAgentPingFailed` by `guest_agent/ping.rs`,
//! `AccessCredentialsSyncSuccess` by `guest_agent/credentials`.

use std::sync::Arc;

use super::vm::Vm;
use crate::notify::{K8sEvent, Notifier};

#[derive(Clone)]
pub(super) struct Warnings {
    notifier: Notifier,
    vm: Arc<Vm>,
    namespace: Arc<str>,
    name: Arc<str>,
}

impl Warnings {
    pub fn new(notifier: Notifier, vm: Arc<Vm>, namespace: &str, name: &str) -> Self {
        Self {
            notifier,
            vm,
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn vmi_name(&self) -> &str {
        &self.name
    }

    pub fn send(&self, reason: &'static str, message: String) {
        self.notifier.k8s_event(&K8sEvent {
            namespace: self.namespace.as_ref().into(),
            name: self.name.as_ref().into(),
            uid: self.vm.metadata().get().uid.clone(),
            reason,
            message,
        });
    }
}
