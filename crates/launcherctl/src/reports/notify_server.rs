//! The notify socket, served like virt-handler's.

use std::path::Path;

use prost::bytes::Bytes;
use serde::de::DeserializeOwned;

use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::events::LauncherEvent;
use crate::files::{FileError, listen};
use api::proto::notify::info::notify_info_server::{NotifyInfo, NotifyInfoServer};
use api::proto::notify::info::{NotifyInfoRequest, NotifyInfoResponse};
use api::proto::notify::v1::notify_server::{Notify, NotifyServer};
use api::proto::notify::v1::{DomainEventRequest, K8sEventRequest, Response as Accepted};

/// Serves a notify socket at `path`, replacing an existing file, and sends events to `events`.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(path: &Path, events: mpsc::Sender<LauncherEvent>) -> Result<(), FileError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(FileError::on("make", directory))?;
    }
    let listener = listen(path)?;
    let server = Routes::default()
        .add_service(NotifyInfoServer::new(Versions))
        .add_service(NotifyServer::new(Events(events)));
    tokio::spawn(os::grpc::serve(server, listener, std::future::pending()));
    Ok(())
}

struct Versions;

#[tonic::async_trait]
impl NotifyInfo for Versions {
    async fn info(
        &self,
        _: Request<NotifyInfoRequest>,
    ) -> Result<Response<NotifyInfoResponse>, Status> {
        Ok(Response::new(NotifyInfoResponse {
            supported_notify_versions: vec![1],
        }))
    }
}

struct Events(mpsc::Sender<LauncherEvent>);

impl Events {
    async fn send(&self, event: LauncherEvent) -> Response<Accepted> {
        // While the program ends, nothing receives it any more.
        let success = self.0.send(event).await.is_ok();
        Response::new(Accepted {
            success,
            message: String::new(),
        })
    }
}

#[tonic::async_trait]
impl Notify for Events {
    async fn handle_domain_event(
        &self,
        request: Request<DomainEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        let domain = parse(&request.into_inner().domain_json)?;
        Ok(self.send(LauncherEvent::Domain(domain)).await)
    }

    async fn handle_k8s_event(
        &self,
        request: Request<K8sEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        let event = parse(&request.into_inner().event_json)?;
        Ok(self.send(LauncherEvent::Kubernetes(event)).await)
    }
}

/// The empty value for an empty text.
fn parse<T: DeserializeOwned + Default>(json: &Bytes) -> Result<T, Status> {
    if json.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(json)
        .map_err(|e| Status::invalid_argument(format!("not the JSON of an event: {e}")))
}
