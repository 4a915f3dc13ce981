//! The calls of a migration, as the virt-handlers of source and target make them, and our own ones
//! about it.

use std::time::Duration;

use prost::bytes::Bytes;
use serde_json::Value;
use tonic::Streaming;

use crate::{
    CHANGE_TIMEOUT, CallError, Client, READ_TIMEOUT, accepted, message, request, with_timeout,
};
use api::proto::cmd::v1::{MigrationRequest, VirtualMachineOptions};
use api::proto::inspect::v1::{MigrationEvent, SetupRequest, SetupResponse, WatchMigrationRequest};

/// virt-handler waits less for one call, and repeats it; this one is made once.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);

impl Client {
    /// Where the launcher has its files; none of the reference's launcher, which has no such call.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn setup(&self) -> Result<Option<SetupResponse>, CallError> {
        let request = with_timeout(SetupRequest {}, READ_TIMEOUT);
        match self.inspect().setup(request).await {
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(None),
            answer => message("Setup", answer).map(Some),
        }
    }

    /// Makes the launcher ready for the VM to arrive.
    ///
    /// # Errors
    /// If it refuses.
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

    /// Begins the migration. `options` are those of virt-handler, as JSON.
    ///
    /// # Errors
    /// If the launcher refuses.
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

    /// Asks for the migration's end.
    ///
    /// # Errors
    /// If the launcher refuses.
    pub async fn cancel_migration(&self, vmi: &Value) -> Result<(), CallError> {
        let call = "CancelVirtualMachineMigration";
        let request = with_timeout(request(vmi), CHANGE_TIMEOUT);
        let answer = self.cmd().cancel_virtual_machine_migration(request).await;
        accepted(call, message(call, answer)?)
    }

    /// Does what is left to do in the guest that has arrived.
    ///
    /// # Errors
    /// If the launcher refuses.
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
    /// If the launcher refuses.
    pub async fn end_migration_target(&self, vmi: &Value) -> Result<(), CallError> {
        let call = "SignalTargetPodCleanup";
        let request = with_timeout(request(vmi), CHANGE_TIMEOUT);
        let answer = self.cmd().signal_target_pod_cleanup(request).await;
        accepted(call, message(call, answer)?)
    }

    /// What the last migration from the launcher does, to its end; or, with `until_now`, what it
    /// has done so far.
    ///
    /// # Errors
    /// If there was none, or the launcher does not have this call (the reference's does not).
    pub async fn migration_events(
        &self,
        until_now: bool,
    ) -> Result<Streaming<MigrationEvent>, CallError> {
        let request = WatchMigrationRequest { until_now };
        message(
            "WatchMigration",
            self.inspect().watch_migration(request).await,
        )
    }
}
