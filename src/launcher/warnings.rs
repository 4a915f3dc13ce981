//! Kubernetes events (K8s events) of the VMI, sent through virt-handler: `IOerror` and
//! `GuestPanicked` by the reporter (`report`), `IgnoredByLibvirt` by `start`,
//! `GuestAgentPingFailed` by `guest_agent/ping.rs`, `AccessCredentialsSyncSuccess` by
//! `guest_agent/credentials`, `LauncherRestarted` by `wiring`. Kubernetes counts equal ones.

use std::sync::Arc;

use super::vm::Vm;
use crate::notify::{K8sEvent, Notifier};

#[derive(Clone)]
pub(super) struct Warnings {
    pub(super) notifier: Notifier,
    pub(super) vm: Arc<Vm>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Warnings {
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
