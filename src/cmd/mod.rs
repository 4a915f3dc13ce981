//! The cmd server on `launcher-sock`: the gRPC services that virt-handler and launcherctl call.
//! Decode (`door`), call the launcher, encode. No logic.
//!
//! A failed call answers `success: false` with gRPC status OK; only `Exec`, `GuestPing` and
//! `GetScreenshot` fail with a gRPC error (docs/contract.md §1).

mod answers;
mod door;
mod info;
mod inspect;
mod preview;
mod service;
mod stable_text;
#[cfg(test)]
mod tests;
mod vm_stats;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use prost::bytes::Bytes;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::launcher::{Launcher, SyncRequest};
use api::proto::cmd::info::cmd_info_server::CmdInfoServer;
use api::proto::cmd::v1;
use api::proto::cmd::v1::cmd_server::CmdServer;
use api::proto::inspect::v1::inspect_server::InspectServer;
use api::proto::preview::v1::preview_server::PreviewServer;
use door::Door;
pub use door::DoorError;

/// Largest message size of a request: gRPC's default, which the reference uses too. etcd refuses
/// objects above 1.5 MiB.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Builds the sync request that virt-handler would send, without options, for the VMI in
/// `vmi_json`.
///
/// # Errors
/// The VMI is invalid or not the launcher's.
pub async fn sync_request(launcher: &Launcher, vmi_json: Bytes) -> Result<SyncRequest, DoorError> {
    let request = v1::VmiRequest {
        vmi: Some(v1::Vmi { vmi_json }),
        options: Bytes::new(),
    };
    Door::new(&launcher.libvirt.name)
        .sync_request(request)
        .await
}

/// Serves the launcher and its metrics on `listener` until `stop` resolves and the calls in
/// progress are answered.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: UnixListener,
    launcher: Arc<Launcher>,
    metrics: Arc<Registry>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (stop_streams, stopping) = watch::channel(false);
    let door = Arc::new(Door::new(&launcher.libvirt.name));
    let preview = preview::Service {
        launcher: launcher.clone(),
        door: door.clone(),
    };
    let inspect = inspect::Service {
        launcher: launcher.clone(),
        metrics,
        stopping,
    };
    let cmd = service::Service { launcher, door };
    let services = Routes::default()
        .add_service(CmdInfoServer::new(info::Info))
        .add_service(CmdServer::new(cmd).max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(PreviewServer::new(preview).max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(InspectServer::new(inspect));
    let stop = async {
        stop.await;
        stop_streams.send_replace(true);
    };
    os::grpc::serve(services, listener, stop).await
}
