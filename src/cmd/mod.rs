//! The gRPC services that virt-handler and launcherctl call: decode, call the launcher, encode. No logic.
//!
//! An ordinary failure is an answer with `success: false` and gRPC status OK; only `Exec`, `GuestPing` and
//! `GetScreenshot` fail with a gRPC error (docs/contract.md §1).

mod info;
mod inspect;
mod preview;
mod service;
mod stable_text;
#[cfg(test)]
mod tests;
mod upgrade;
mod vm_stats;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use prost::bytes::Bytes;
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::transport::Server;

use api::Action;
use api::proto::cmd::info::cmd_info_server::CmdInfoServer;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::proto::cmd::v1::cmd_server::CmdServer;
use api::proto::inspect::v1::inspect_server::InspectServer;
use api::proto::inspect::v1::{
    DebugResponse, LastSyncResponse, MigrationEvent, SetupResponse, TimelineResponse,
};
use api::proto::preview::v1::preview_server::PreviewServer;
use api::proto::upgrade::v1::upgrade_server::UpgradeServer;
use domain::Domain;
use domain::guest_agent::GuestAgentInfo;
use domain::stats::DomainStats;
use libvirt::Screenshot;

pub use vm_stats::AgentCommand;

/// Largest request that is read. tonic's default, 4 MiB, is also Go's; a VMI with its status fits (etcd refuses objects
/// above 1.5 MiB), but the node's topology, plugins and certificates travel in the same message, and a request that is
/// refused for its size can never succeed. The bound is there so that a stray client cannot take the pod's memory.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// A command for the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestCommand {
    /// Name of the domain; empty for the only one.
    pub domain: String,
    /// The program.
    pub path: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a command in the guest ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestOutput {
    /// Its exit status.
    pub exit_code: i32,
    /// What it printed.
    pub stdout: String,
}

/// What the service needs of a launcher. The texts of its errors reach users; those that other components match on are
/// the launcher's to keep (docs/contract.md §9).
pub trait LauncherApi: Send + Sync + 'static {
    /// Why a call failed.
    type Error: Error + Send + Sync + 'static;

    /// Makes the domain what the VMI says.
    fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// What a sync would change, as JSON.
    fn dry_run(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<Value, Self::Error>> + Send;

    /// Does something to the VMI's domain.
    fn act(
        self: &Arc<Self>,
        action: Action,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The domain as virt-handler may see it.
    fn domain(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Option<Arc<Domain>>, Self::Error>> + Send;

    /// QEMU's version.
    fn qemu_version(self: &Arc<Self>) -> impl Future<Output = Result<String, Self::Error>> + Send;

    /// What the guest agent has said, from memory. A new agent gets a moment to say it.
    fn guest_info(self: &Arc<Self>) -> impl Future<Output = GuestAgentInfo> + Send;

    /// Runs a command in the guest.
    fn exec(
        self: &Arc<Self>,
        command: GuestCommand,
    ) -> impl Future<Output = Result<GuestOutput, Self::Error>> + Send;

    /// Whether the guest agent answers within `timeout`.
    fn guest_ping(
        self: &Arc<Self>,
        domain: &str,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Freezes the guest's file systems, for at most `thaw_after`; zero is no limit.
    fn freeze(
        self: &Arc<Self>,
        vmi_json: Bytes,
        thaw_after: Duration,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Thaws them.
    fn unfreeze(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Begins a dump of the guest's memory into `path`.
    fn dump_memory(
        self: &Arc<Self>,
        vmi_json: Bytes,
        path: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Begins to migrate the domain to another node; `options` has the limits as JSON.
    fn migrate(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Asks for the end of that migration.
    fn cancel_migration(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Begins a backup, ends it, or lets a server read it; `options` say what, as JSON.
    fn backup(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Redefines a checkpoint (JSON).
    fn redefine_checkpoint(
        self: &Arc<Self>,
        vmi_json: Bytes,
        checkpoint: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether the error means that the checkpoint is of no use any more.
    fn is_checkpoint_invalid(error: &Self::Error) -> bool;

    /// Gives the guest the CPUs that the VMI says.
    fn sync_cpus(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Begins to attach the host devices that the VMI has and the domain lacks.
    fn hotplug_host_devices(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Gives the guest the memory that the VMI says.
    fn sync_memory(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes the pod ready for the domain to arrive from another node.
    fn sync_migration_target(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Does what is left to do in a guest that has arrived.
    fn finalize_migration(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The migration has failed; its target ends, if that is this pod.
    fn signal_target_cleanup(&self, vmi_json: &[u8]) -> Result<(), Self::Error>;

    /// The node's SEV keys, as JSON.
    fn sev_info(self: &Arc<Self>) -> impl Future<Output = Result<String, Self::Error>> + Send;

    /// What was measured of a guest with SEV, as JSON.
    fn launch_measurement(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> impl Future<Output = Result<String, Self::Error>> + Send;

    /// Gives a guest with SEV its secret, which `options` has as JSON.
    fn inject_launch_secret(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: Bytes,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The domain's statistics.
    fn domain_stats(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<DomainStats, Self::Error>> + Send;

    /// How fast the guest writes to its memory, in MiB/s.
    fn dirty_rate(self: &Arc<Self>) -> impl Future<Output = Result<i64, Self::Error>> + Send;

    /// What the guest agent answers to a command, as JSON.
    fn agent_data(
        self: &Arc<Self>,
        command: AgentCommand,
    ) -> impl Future<Output = Result<String, Self::Error>> + Send;

    /// The guest agent's version; empty if it is not known.
    fn guest_agent_version(&self) -> String;

    /// `GetVMStats` is on.
    fn collects_vm_stats(&self) -> bool;

    /// A picture of the guest's screen.
    fn screenshot(self: &Arc<Self>)
    -> impl Future<Output = Result<Screenshot, Self::Error>> + Send;

    /// Lets another executable take over.
    fn hand_over(
        self: &Arc<Self>,
        executable: PathBuf,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The steps of the start, with their times.
    fn timeline(&self) -> TimelineResponse;

    /// The VMI of the last sync, with its options; empty before the first.
    fn last_sync(&self) -> LastSyncResponse;

    /// Where the launcher has its files.
    fn setup(&self) -> SetupResponse;

    /// Whether a migration from here has begun.
    fn has_migrated(&self) -> bool;

    /// Waits for events of the last migration from here that come after this number (0 is before all), and returns the
    /// number of the last one, and all of them.
    fn migration_events(
        self: &Arc<Self>,
        after: u64,
    ) -> impl Future<Output = (u64, Vec<MigrationEvent>)> + Send;

    /// What a bug report needs.
    fn debug(self: &Arc<Self>) -> impl Future<Output = DebugResponse> + Send;

    /// Waits for a state that is newer than this generation (0 is older than all), and returns it: its generation, and
    /// what virt-handler was sent last.
    fn domain_after(
        self: &Arc<Self>,
        generation: u64,
    ) -> impl Future<Output = (u64, Option<Arc<Domain>>)> + Send;
}

/// Serves the launcher and its metrics on `listener` until `stop` resolves, and then until the calls in progress are answered.
///
/// # Errors
/// When the listener fails.
pub async fn serve<L: LauncherApi>(
    listener: UnixListener,
    launcher: Arc<L>,
    metrics: Arc<Registry>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (stop_streams, stopping) = watch::channel(false);
    let preview = PreviewServer::new(preview::Service {
        launcher: launcher.clone(),
    })
    .max_decoding_message_size(MAX_REQUEST_BYTES);
    let inspect = InspectServer::new(inspect::Service {
        launcher: launcher.clone(),
        metrics,
        stopping,
    });
    let upgrade = UpgradeServer::new(upgrade::Service {
        launcher: launcher.clone(),
    });
    let cmd = CmdServer::new(service::Service::new(launcher))
        .max_decoding_message_size(MAX_REQUEST_BYTES);
    let services = Server::builder()
        .add_service(CmdInfoServer::new(info::Info))
        .add_service(cmd)
        .add_service(preview)
        .add_service(inspect)
        .add_service(upgrade);
    let stop = async {
        stop.await;
        stop_streams.send_replace(true);
    };
    os::grpc::serve(services, listener, stop).await
}
