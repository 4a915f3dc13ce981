//! The launcher as the end of the pod sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;

use super::stop::Guest;
use crate::cmd::LauncherApi;
use crate::launcher::{Launcher, LauncherError, Phase};
use api::Action;
use pod::Config;

/// For the queue of notifications to empty; who waits for it has a limit of its own.
const FLUSH: Duration = Duration::from_secs(60);
/// For sidecars to say goodbye.
const SIDECARS: Duration = Duration::from_secs(10);

/// The launcher, and what the calls of virt-handler would carry.
pub struct LauncherGuest {
    launcher: Arc<Launcher>,
    /// As much of the VMI as the calls need.
    vmi_json: Bytes,
    standalone: bool,
    notify_socket: PathBuf,
}

impl LauncherGuest {
    /// The guest of these config.
    pub fn new(
        launcher: Arc<Launcher>,
        config: &Config,
        standalone: bool,
        notify_socket: PathBuf,
    ) -> Self {
        let metadata = serde_json::json!({ "name": config.name, "namespace": config.namespace, "uid": config.uid });
        let vmi_json = Bytes::from(serde_json::json!({ "metadata": metadata }).to_string());
        Self {
            launcher,
            vmi_json,
            standalone,
            notify_socket,
        }
    }

    async fn act(&self, action: Action) -> Result<(), LauncherError> {
        self.launcher
            .clone()
            .act(action, self.vmi_json.clone())
            .await
    }
}

impl Guest for LauncherGuest {
    type Error = LauncherError;

    async fn mark_for_graceful_shutdown(&self) {
        self.launcher.mark_for_graceful_shutdown();
    }

    async fn shut_down(&self) -> Result<(), LauncherError> {
        self.act(Action::Shutdown).await
    }

    async fn kill(&self) -> Result<(), LauncherError> {
        self.launcher.kill().await
    }

    async fn delete(&self) -> Result<(), LauncherError> {
        self.act(Action::Delete).await
    }

    /// virt-handler makes the notify socket when it has seen the launcher.
    fn has_handler(&self) -> bool {
        !self.standalone && self.notify_socket.exists()
    }

    async fn last_event_sent(&self) {
        let mut state = self.launcher.state();
        // An error means that the launcher is gone, and with it whoever could tell more.
        drop(state.wait_for(|vm| vm.phase == Phase::Gone).await);
        self.launcher
            .notifier()
            .flush(os::time::deadline(FLUSH))
            .await;
    }

    async fn shut_down_sidecars(&self) {
        if let Err(error) = self
            .launcher
            .sidecars()
            .shutdown(os::time::deadline(SIDECARS))
            .await
        {
            tracing::error!(
                reason = &error as &dyn std::error::Error,
                "A hook sidecar was not told of the end"
            );
        }
    }
}
