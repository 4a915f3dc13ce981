//! A plugin's sidecar with a gRPC server: a watchdog for the guest, and migrations over several
//! connections where the VMI has the label `storage: remote`; see the README.

use std::error::Error;
use std::path::PathBuf;

use api::proto::hooks::plugins::launcher_hook_service_server::{
    LauncherHookService, LauncherHookServiceServer,
};
use api::proto::hooks::plugins::{
    GuestDefinitionRequest, GuestDefinitionResponse, PreBootRequest, PreBootResponse,
    PreMigrationSourceRequest, PreMigrationSourceResponse,
};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

const WATCHDOG: &str = r#"<watchdog model="i6300esb" action="reset"/>"#;
const PARALLEL: &str = "VIR_MIGRATE_PARALLEL";
const CONNECTIONS: u32 = 4;

struct Plugin;

#[tonic::async_trait]
impl LauncherHookService for Plugin {
    async fn guest_definition(
        &self,
        request: Request<GuestDefinitionRequest>,
    ) -> Result<Response<GuestDefinitionResponse>, Status> {
        let domain = text(&request.get_ref().domain)?;
        // A start that is repeated calls the hook again; its own result stays unchanged.
        let changed = match domain.rsplit_once("</devices>") {
            Some((before, after)) if !domain.contains("<watchdog") => {
                format!("{before}{WATCHDOG}</devices>{after}")
            }
            _ => domain.to_owned(),
        };
        Ok(Response::new(GuestDefinitionResponse {
            domain: changed.into(),
        }))
    }

    async fn pre_boot(
        &self,
        _: Request<PreBootRequest>,
    ) -> Result<Response<PreBootResponse>, Status> {
        // `permittedHooks` does not name it.
        Err(Status::unimplemented("PreBoot"))
    }

    async fn pre_migration_source(
        &self,
        request: Request<PreMigrationSourceRequest>,
    ) -> Result<Response<PreMigrationSourceResponse>, Status> {
        let request = request.into_inner();
        let vmi: Value = serde_json::from_slice(&request.vmi)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let labels = &vmi["metadata"]["labels"];
        if labels["storage"] == "frozen" {
            // The migration does not begin; its failureReason has this text.
            return Err(Status::failed_precondition("its storage must not move"));
        }
        let mut settings = request.settings.unwrap_or_default();
        if labels["storage"] == "remote" && settings.parallel_connections == 0 {
            settings.flags.push(PARALLEL.to_owned());
            settings.parallel_connections = CONNECTIONS;
        }
        Ok(Response::new(PreMigrationSourceResponse {
            settings: Some(settings),
        }))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map_or_else(
        || PathBuf::from("/var/run/kubevirt-plugin/multifd"),
        PathBuf::from,
    );
    let socket = directory.join("hook.sock");
    // A container that was restarted has left its socket.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListenerStream::new(UnixListener::bind(&socket)?);
    let mut terminate = signal(SignalKind::terminate())?;
    Server::builder()
        .add_service(LauncherHookServiceServer::new(Plugin))
        .serve_with_incoming_shutdown(listener, async move {
            terminate.recv().await;
        })
        .await?;
    std::fs::remove_file(&socket)?;
    Ok(())
}
