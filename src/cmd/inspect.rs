//! What launcherctl asks a launcher about itself.

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::LauncherApi;
use api::proto::inspect::v1::inspect_server::Inspect;
use api::proto::inspect::v1::{
    DebugRequest, DebugResponse, DomainChange, MetricsRequest, MetricsResponse, TimelineRequest,
    TimelineResponse, WatchDomainRequest,
};
use domain::Domain;

pub(super) struct Service<L> {
    pub launcher: Arc<L>,
    pub metrics: Arc<Registry>,
    /// True once the launcher ends.
    pub stopping: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl<L: LauncherApi> Inspect for Service<L> {
    type WatchDomainStream = ReceiverStream<Result<DomainChange, Status>>;

    async fn timeline(
        &self,
        _: Request<TimelineRequest>,
    ) -> Result<Response<TimelineResponse>, Status> {
        Ok(Response::new(self.launcher.timeline()))
    }

    async fn debug(&self, _: Request<DebugRequest>) -> Result<Response<DebugResponse>, Status> {
        Ok(Response::new(self.launcher.debug().await))
    }

    async fn metrics(
        &self,
        _: Request<MetricsRequest>,
    ) -> Result<Response<MetricsResponse>, Status> {
        let mut text = String::new();
        match encode(&mut text, &self.metrics) {
            Ok(()) => Ok(Response::new(MetricsResponse {
                open_metrics_text: text,
            })),
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn watch_domain(
        &self,
        _: Request<WatchDomainRequest>,
    ) -> Result<Response<Self::WatchDomainStream>, Status> {
        // A client that does not read gets the newest state when it does.
        let (sender, changes) = mpsc::channel(1);
        let (launcher, mut stopping) = (self.launcher.clone(), self.stopping.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = send_changes(launcher, &sender) => {}
                () = sender.closed() => {}
                // The server waits for its calls.
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(changes)))
    }
}

async fn send_changes<L: LauncherApi>(
    launcher: Arc<L>,
    sender: &mpsc::Sender<Result<DomainChange, Status>>,
) {
    let mut generation = 0;
    loop {
        let (now, domain) = launcher.domain_after(generation).await;
        generation = now;
        let change = domain.as_deref().map_or(Ok(String::new()), Domain::to_json);
        let change = change
            .map(|json| DomainChange {
                domain_json: Bytes::from(json),
            })
            .map_err(|error| Status::internal(error.to_string()));
        if sender.send(change).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
