//! Implements [`GuestAtPodEnd`] for the launcher: what the end of the pod needs of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::stop::GuestAtPodEnd;
use crate::launcher::{Launcher, LauncherError, Phase, Request, Snapshot};

/// Limit for emptying the notification queue. The end of the pod has a shorter limit of its own.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for QEMU to exit after SIGTERM at the end of the grace period, 15 s before the kubelet
/// kills the pod. Shorter than `stop::LIBVIRT_TIMEOUT`, which bounds it; `stop::end_start` is
/// shorter still, and kills QEMU itself.
const POD_END_KILL_PATIENCE: Duration = Duration::from_secs(8);
/// Limit for the sidecars, which are called at the same time, to answer the Shutdown hook.
/// KubeVirt's launcher gives each sidecar as long.
const SIDECAR_TIMEOUT: Duration = Duration::from_secs(60);

pub struct LauncherGuest {
    pub launcher: Arc<Launcher>,
    /// The VM comes from `STANDALONE_VMI`, without virt-handler.
    pub is_standalone: bool,
    /// virt-handler makes this socket once it has seen the launcher.
    pub notify_socket: PathBuf,
}

impl GuestAtPodEnd for LauncherGuest {
    type Error = LauncherError;

    async fn mark_for_graceful_shutdown(&self) {
        self.launcher.mark_for_graceful_shutdown();
    }

    async fn shut_down(&self) -> Result<(), LauncherError> {
        let request = Request::PodShutdown;
        self.launcher.requests.shutdown(request).await
    }

    async fn kill(&self) -> Result<(), LauncherError> {
        self.launcher.killer.kill(POD_END_KILL_PATIENCE).await
    }

    async fn delete(&self) -> Result<(), LauncherError> {
        let request = Request::PodCleanup;
        self.launcher.requests.undefine(request).await
    }

    fn refuse_starts(&self) -> bool {
        self.launcher.vm.refuse_starts()
    }

    async fn start_ended(&self) -> bool {
        let mut state = self.launcher.vm.subscribe();
        // The first read finds an earlier launcher's domain.
        let is_known = |vm: &Snapshot| vm.phase != Phase::Unknown && !vm.phase.is_starting();
        // An error means that the launcher has ended.
        let ended = state.wait_for(is_known).await;
        ended.is_ok_and(|vm| vm.phase.has_run())
    }

    fn has_handler(&self) -> bool {
        !self.is_standalone && self.notify_socket.exists()
    }

    fn has_told_handler(&self) -> bool {
        self.launcher.notifier.counts().delivered > 0
    }

    async fn ended(&self) {
        let has_ended = |phase| matches!(phase, Phase::Ended | Phase::Gone);
        // An error means that the launcher has ended.
        let mut state = self.launcher.vm.subscribe();
        drop(state.wait_for(|vm| has_ended(vm.phase)).await);
    }

    async fn last_event_sent(&self) {
        let mut state = self.launcher.vm.subscribe();
        // An error means that the launcher has ended.
        drop(state.wait_for(|vm| vm.phase == Phase::Gone).await);
        let deadline = os::time::deadline(FLUSH_TIMEOUT);
        self.launcher.notifier.flush(deadline).await;
    }

    async fn shut_down_sidecars(&self) {
        let deadline = os::time::deadline(SIDECAR_TIMEOUT);
        if let Err(error) = self.launcher.sidecars.shutdown(deadline).await {
            tracing::error!(reason = %os::logging::chain(&error), "A hook sidecar did not answer its Shutdown call");
        }
    }
}
