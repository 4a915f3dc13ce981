//! What launcherctl asks about a launcher.

use std::sync::Arc;

use super::Launcher;
use api::proto::inspect::v1::{LastSyncResponse, MigrationEvent, SetupResponse};
use domain::Domain;

impl Launcher {
    /// The VMI and the options of the last sync; empty before the first.
    #[must_use]
    pub fn last_sync(&self) -> LastSyncResponse {
        self.syncs.last_sync()
    }

    /// Where the launcher has its files.
    #[must_use]
    pub fn setup(&self) -> SetupResponse {
        SetupResponse {
            root: self.config.pod.root.dir().display().to_string(),
            pod_name: self.config.pod_name.clone(),
        }
    }

    /// Whether `GetVMStats` is on.
    #[must_use]
    pub fn collects_vm_stats(&self) -> bool {
        self.config.vm_stats_collector
    }

    /// Whether a migration from here has begun since this launcher was started.
    #[must_use]
    pub fn has_migrated(&self) -> bool {
        !self.migration_record.is_empty()
    }

    /// Waits for events of the last migration from here that come after this number (0 is before all), and returns the
    /// number of the last one, and all of them.
    pub async fn migration_events(&self, after: u64) -> (u64, Vec<MigrationEvent>) {
        self.migration_record.after(after).await
    }

    /// Waits for a state that is newer than this generation (0 is older than all), and returns its generation and the
    /// document that virt-handler was sent last.
    pub async fn domain_after(&self, generation: u64) -> (u64, Option<Arc<Domain>>) {
        let mut state = self.state();
        // The sender lives as long as the launcher, so this waits, and does not fail.
        let _ = state.wait_for(|vm| vm.generation > generation).await;
        let newer = self.vm.snapshot();
        (newer.generation, newer.document)
    }
}
