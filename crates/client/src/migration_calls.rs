//! A migration's calls, as virt-handler makes them on source and target, and our own.

use std::time::Duration;

use prost::bytes::Bytes;
use serde_json::Value;
use tonic::Streaming;

use crate::{CHANGE_TIMEOUT, CallError, Client, accepted, message, request, with_timeout};
use api::proto::cmd::v1::{MigrationRequest, VirtualMachineOptions};
use api::proto::inspect::v1::{MigrationEvent, WatchMigrationRequest};

/// virt-handler waits less and repeats the call; this call is made once.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);

impl Client {
    /// Prepares the launcher for the arrival of the VM.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn prepare_migration_target(
        &self,
        vmi: &Value,
        options: VirtualMachineOptions,
    ) -> Result<(), CallError> {
        let call = "SyncMigrationTarget";
        let request = request(vmi).with_options(&options);
        let request = with_timeout(request, PREPARE_TIMEOUT);
        let answer = self.cmd().sync_migration_target(request).await;
        accepted(call, message(call, answer)?)
    }

    /// Starts the migration. `options` are virt-handler's, as JSON.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn migrate(&self, vmi: &Value, options: &Value) -> Result<(), CallError> {
        let call = "MigrateVirtualMachine";
        let request = MigrationRequest {
            vmi: request(vmi).vmi,
            options: Bytes::from(options.to_string()),
        };
        let request = with_timeout(request, CHANGE_TIMEOUT);
        let answer = self.cmd().migrate_virtual_machine(request).await;
        accepted(call, message(call, answer)?)
    }

    /// Requests the migration's cancellation.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn cancel_migration(&self, vmi: &Value) -> Result<(), CallError> {
        let call = "CancelVirtualMachineMigration";
        let request = with_timeout(request(vmi), CHANGE_TIMEOUT);
        let answer = self.cmd().cancel_virtual_machine_migration(request).await;
        accepted(call, message(call, answer)?)
    }

    /// Finishes the migration in the arrived guest.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn finalize_migration(&self, vmi: &Value) -> Result<(), CallError> {
        let call = "FinalizeVirtualMachineMigration";
        let request = request(vmi);
        let request = with_timeout(request, CHANGE_TIMEOUT);
        let answer = self.cmd().finalize_virtual_machine_migration(request).await;
        accepted(call, message(call, answer)?)
    }

    /// Ends a target whose migration has failed.
    ///
    /// # Errors
    /// The launcher refuses.
    pub async fn end_migration_target(&self, vmi: &Value) -> Result<(), CallError> {
        let call = "SignalTargetPodCleanup";
        let request = with_timeout(request(vmi), CHANGE_TIMEOUT);
        let answer = self.cmd().signal_target_pod_cleanup(request).await;
        accepted(call, message(call, answer)?)
    }

    /// The events of the last migration from the launcher, to its end.
    ///
    /// # Errors
    /// There was none, or the launcher lacks this call (KubeVirt's does).
    pub async fn migration_events(&self) -> Result<Streaming<MigrationEvent>, CallError> {
        let events = self
            .inspect()
            .watch_migration(WatchMigrationRequest {})
            .await;
        message("WatchMigration", events)
    }
}
