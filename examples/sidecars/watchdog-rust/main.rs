//! A hook sidecar with a gRPC server of its own, for protocol version v1alpha3. It adds a watchdog
//! to the virtual machine, and a final message to its cloud-config; see the README.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use api::proto::hooks::info::info_server::{Info, InfoServer};
use api::proto::hooks::info::{HookPoint, InfoParams, InfoResult};
use api::proto::hooks::v1alpha3::callbacks_server::{Callbacks, CallbacksServer};
use api::proto::hooks::v1alpha3::{
    OnDefineDomainParams, OnDefineDomainResult, PreCloudInitIsoParams, PreCloudInitIsoResult,
    ShutdownParams, ShutdownResult,
};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

const WATCHDOG: &str = r#"<watchdog model="i6300esb" action="reset"/>"#;
const FINAL_MESSAGE: &str = "final_message: \"booted with a watchdog\"\n";

#[derive(Clone, Default)]
struct Sidecar {
    done: Arc<Notify>,
}

#[tonic::async_trait]
impl Info for Sidecar {
    async fn info(&self, _: Request<InfoParams>) -> Result<Response<InfoResult>, Status> {
        let points = ["OnDefineDomain", "PreCloudInitIso", "Shutdown"];
        Ok(Response::new(InfoResult {
            name: "watchdog".into(),
            // The highest priority is called first. Use 0 where the order does not matter.
            hook_points: points
                .map(|name| HookPoint {
                    name: name.into(),
                    priority: 0,
                })
                .into(),
            versions: vec!["v1alpha3".into()],
        }))
    }
}

#[tonic::async_trait]
impl Callbacks for Sidecar {
    async fn on_define_domain(
        &self,
        request: Request<OnDefineDomainParams>,
    ) -> Result<Response<OnDefineDomainResult>, Status> {
        let domain = text(&request.get_ref().domain_xml)?;
        // A launcher may call the hook with its own result, which then stays unchanged.
        let changed = match domain.rsplit_once("</devices>") {
            Some((before, after)) if !domain.contains("<watchdog") => {
                format!("{before}{WATCHDOG}</devices>{after}")
            }
            _ => domain.to_owned(),
        };
        Ok(Response::new(OnDefineDomainResult {
            domain_xml: changed.into(),
        }))
    }

    async fn pre_cloud_init_iso(
        &self,
        request: Request<PreCloudInitIsoParams>,
    ) -> Result<Response<PreCloudInitIsoResult>, Status> {
        let mut data: serde_json::Value =
            serde_json::from_slice(&request.get_ref().cloud_init_data)
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let user_data = data["UserData"].as_str().unwrap_or_default();
        if user_data.starts_with("#cloud-config") && !user_data.contains("final_message:") {
            data["UserData"] = format!("{}\n{FINAL_MESSAGE}", user_data.trim_end()).into();
        }
        Ok(Response::new(PreCloudInitIsoResult {
            cloud_init_data: data.to_string().into(),
            ..Default::default()
        }))
    }

    async fn shutdown(
        &self,
        _: Request<ShutdownParams>,
    ) -> Result<Response<ShutdownResult>, Status> {
        self.done.notify_one();
        Ok(Response::new(ShutdownResult {}))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("/var/run/kubevirt-hooks"), PathBuf::from);
    let socket = directory.join("watchdog.sock");
    // A container that was restarted has left its socket.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListenerStream::new(UnixListener::bind(&socket)?);
    let mut terminate = signal(SignalKind::terminate())?;
    let sidecar = Sidecar::default();
    let done = Arc::clone(&sidecar.done);
    Server::builder()
        .add_service(InfoServer::new(sidecar.clone()))
        .add_service(CallbacksServer::new(sidecar))
        .serve_with_incoming_shutdown(listener, async move {
            tokio::select! { () = done.notified() => {} _ = terminate.recv() => {} }
        })
        .await?;
    std::fs::remove_file(&socket)?;
    Ok(())
}
