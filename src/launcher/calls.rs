//! What the cmd server calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;

use super::{Launcher, LauncherError, log_outcome};
use crate::cmd::{AgentCommand, GuestCommand, GuestOutput, LauncherApi};
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::proto::inspect::v1::{
    DebugResponse, LastSyncResponse, MigrationEvent, SetupResponse, TimelineResponse,
};
use domain::Domain;
use domain::guest_agent::GuestAgentInfo;
use domain::stats::DomainStats;
use libvirt::Screenshot;
use os::failpoints;

impl LauncherApi for Launcher {
    type Error = LauncherError;

    async fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::sync(self, vmi_json, options).await
    }

    async fn dry_run(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> Result<serde_json::Value, LauncherError> {
        Launcher::dry_run(self, vmi_json).await
    }

    async fn act(self: &Arc<Self>, action: Action, vmi_json: Bytes) -> Result<(), LauncherError> {
        let vmi = self.our_vmi(&vmi_json)?;
        let result = self.run_action(action, &vmi).await;
        let (done, failed) = log_texts(action);
        log_outcome(&result, done, failed);
        result
    }

    async fn domain(self: &Arc<Self>) -> Result<Option<Arc<Domain>>, LauncherError> {
        failpoints::hit("call.begun");
        Launcher::domain(self).await
    }

    async fn qemu_version(self: &Arc<Self>) -> Result<String, LauncherError> {
        Launcher::qemu_version(self).await
    }

    async fn guest_info(self: &Arc<Self>) -> GuestAgentInfo {
        Launcher::guest_info(self).await
    }

    async fn exec(self: &Arc<Self>, command: GuestCommand) -> Result<GuestOutput, LauncherError> {
        Launcher::exec(self, command).await
    }

    async fn guest_ping(
        self: &Arc<Self>,
        domain: &str,
        timeout: Duration,
    ) -> Result<(), LauncherError> {
        Launcher::guest_ping(self, domain, timeout).await
    }

    async fn freeze(
        self: &Arc<Self>,
        vmi_json: Bytes,
        thaw_after: Duration,
    ) -> Result<(), LauncherError> {
        let vmi = self.our_vmi(&vmi_json)?;
        let result = Launcher::freeze(self, &vmi, thaw_after).await;
        log_outcome(&result, "Freezed vmi", "Failed to freeze vmi");
        result
    }

    async fn unfreeze(self: &Arc<Self>, vmi_json: Bytes) -> Result<(), LauncherError> {
        self.our_vmi(&vmi_json)?;
        let result = Launcher::unfreeze(self).await;
        log_outcome(&result, "Unfreezed vmi", "Failed to unfreeze vmi");
        result
    }

    async fn dump_memory(
        self: &Arc<Self>,
        vmi_json: Bytes,
        path: &str,
    ) -> Result<(), LauncherError> {
        self.our_vmi(&vmi_json)?;
        Launcher::dump_memory(self, path);
        Ok(())
    }

    async fn migrate(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> Result<(), LauncherError> {
        let result = Launcher::migrate(self, vmi_json, options).await;
        log_outcome(&result, "Signaled vmi migration", "Failed to migrate vmi");
        result
    }

    async fn cancel_migration(self: &Arc<Self>, vmi_json: Bytes) -> Result<(), LauncherError> {
        let result = Launcher::cancel_migration(self, vmi_json).await;
        let failed = "Failed to abort live migration";
        log_outcome(&result, "Live migration has been aborted", failed);
        result
    }

    async fn backup(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> Result<(), LauncherError> {
        Launcher::backup(self, vmi_json, options).await
    }

    async fn redefine_checkpoint(
        self: &Arc<Self>,
        vmi_json: Bytes,
        checkpoint: Bytes,
    ) -> Result<(), LauncherError> {
        let result = Launcher::redefine_checkpoint(self, vmi_json, checkpoint).await;
        log_outcome(
            &result,
            "Checkpoint redefined successfully",
            "Failed to redefine checkpoint",
        );
        result
    }

    fn is_checkpoint_invalid(error: &LauncherError) -> bool {
        error.is_checkpoint_invalid()
    }

    async fn sync_cpus(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::sync_cpus(self, vmi_json, options).await
    }

    async fn hotplug_host_devices(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::hotplug_host_devices(self, vmi_json, options).await
    }

    async fn sync_memory(self: &Arc<Self>, vmi_json: Bytes) -> Result<(), LauncherError> {
        Launcher::sync_memory(self, vmi_json).await
    }

    async fn sync_migration_target(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::sync_migration_target(self, vmi_json, options).await
    }

    async fn finalize_migration(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::finalize_migration(self, vmi_json, options).await
    }

    fn signal_target_cleanup(&self, vmi_json: &[u8]) -> Result<(), LauncherError> {
        Launcher::signal_target_cleanup(self, vmi_json)
    }

    async fn sev_info(self: &Arc<Self>) -> Result<String, LauncherError> {
        Launcher::sev_info(self).await
    }

    async fn launch_measurement(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> Result<String, LauncherError> {
        Launcher::launch_measurement(self, &vmi_json).await
    }

    async fn inject_launch_secret(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> Result<(), LauncherError> {
        Launcher::inject_launch_secret(self, &vmi_json, &options).await
    }

    async fn domain_stats(self: &Arc<Self>) -> Result<DomainStats, LauncherError> {
        Launcher::domain_stats(self).await
    }

    async fn dirty_rate(self: &Arc<Self>) -> Result<i64, LauncherError> {
        Launcher::dirty_rate(self).await
    }

    async fn agent_data(self: &Arc<Self>, command: AgentCommand) -> Result<String, LauncherError> {
        Launcher::agent_data(self, command).await
    }

    fn guest_agent_version(&self) -> String {
        Launcher::guest_agent_version(self)
    }

    fn collects_vm_stats(&self) -> bool {
        self.config.vm_stats_collector
    }

    async fn hand_over(self: &Arc<Self>, executable: PathBuf) -> Result<(), LauncherError> {
        Launcher::hand_over(self, executable).await
    }

    async fn screenshot(self: &Arc<Self>) -> Result<Screenshot, LauncherError> {
        Launcher::screenshot(self).await
    }

    fn timeline(&self) -> TimelineResponse {
        self.config.timeline.to_message()
    }

    fn last_sync(&self) -> LastSyncResponse {
        self.syncs.last_sync()
    }

    fn setup(&self) -> SetupResponse {
        SetupResponse {
            root: self.config.pod.root.dir().display().to_string(),
            pod_name: self.config.pod_name.clone(),
        }
    }

    async fn debug(self: &Arc<Self>) -> DebugResponse {
        Launcher::debug(self).await
    }

    fn has_migrated(&self) -> bool {
        !self.migration_record.is_empty()
    }

    async fn migration_events(self: &Arc<Self>, after: u64) -> (u64, Vec<MigrationEvent>) {
        self.migration_record.after(after).await
    }

    async fn domain_after(self: &Arc<Self>, generation: u64) -> (u64, Option<Arc<Domain>>) {
        let mut state = self.state();
        // The sender lives as long as the launcher, so this waits, and does not fail.
        let _ = state.wait_for(|vm| vm.generation > generation).await;
        let newer = self.vm.snapshot();
        (newer.generation, newer.document)
    }
}

/// The reference's log lines for what was done, and what failed.
fn log_texts(action: Action) -> (&'static str, &'static str) {
    match action {
        Action::Pause => ("Paused vmi", "Failed to pause vmi"),
        Action::Unpause => ("Unpaused vmi", "Failed to unpause vmi"),
        Action::Reset => ("Reset vmi", "Failed to reset vmi"),
        Action::SoftReboot => ("Soft rebooted vmi", "Failed to soft reboot vmi"),
        Action::Shutdown => ("Signaled vmi shutdown", "Failed to signal shutdown for vmi"),
        Action::Kill => ("Signaled vmi kill", "Failed to kill vmi"),
        Action::Delete => ("Signaled vmi deletion", "Failed to signal deletion for vmi"),
    }
}
