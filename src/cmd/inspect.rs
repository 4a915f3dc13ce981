//! launcherctl's questions about the launcher itself.

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::launcher::Launcher;
use api::proto::inspect::v1::inspect_server::Inspect;
use api::proto::inspect::v1::{
    DebugRequest, DebugResponse, DomainChange, LastSyncRequest, LastSyncResponse, MetricsRequest,
    MetricsResponse, MigrationEvent, TimelineRequest, TimelineResponse, WatchDomainRequest,
    WatchMigrationRequest, migration_event,
};
use domain::Domain;

pub(super) struct Service {
    pub launcher: Arc<Launcher>,
    pub metrics: Arc<Registry>,
    /// Becomes true when the launcher ends.
    pub stopping: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Inspect for Service {
    type WatchDomainStream = ReceiverStream<Result<DomainChange, Status>>;
    type WatchMigrationStream = ReceiverStream<Result<MigrationEvent, Status>>;

    async fn watch_migration(
        &self,
        _: Request<WatchMigrationRequest>,
    ) -> Result<Response<Self::WatchMigrationStream>, Status> {
        if self.launcher.migration.record.is_empty() {
            let message = "no migration from here has begun since this launcher was started";
            return Err(Status::not_found(message));
        }
        let launcher = self.launcher.clone();
        let stream = self.stream(|sender| async move {
            send_migration(launcher, &sender).await;
        });
        Ok(Response::new(stream))
    }

    async fn timeline(
        &self,
        _: Request<TimelineRequest>,
    ) -> Result<Response<TimelineResponse>, Status> {
        Ok(Response::new(self.launcher.config.timeline.to_message()))
    }

    async fn debug(&self, _: Request<DebugRequest>) -> Result<Response<DebugResponse>, Status> {
        Ok(Response::new(self.launcher.inspection.debug().await))
    }

    async fn last_sync(
        &self,
        _: Request<LastSyncRequest>,
    ) -> Result<Response<LastSyncResponse>, Status> {
        Ok(Response::new(self.launcher.syncs.last_sync()))
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
        let launcher = self.launcher.clone();
        let stream = self.stream(|sender| async move { send_changes(launcher, &sender).await });
        Ok(Response::new(stream))
    }
}

impl Service {
    /// Streams what `send` sends until it returns, the client disconnects, or the launcher ends:
    /// the server's end waits for open calls.
    fn stream<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
        &self,
        send: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
    ) -> ReceiverStream<Result<T, Status>> {
        // A slow client gets only the newest state.
        let (sender, items) = mpsc::channel(1);
        let mut stopping = self.stopping.clone();
        let sending = send(sender.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = sending => {}
                () = sender.closed() => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
        ReceiverStream::new(items)
    }
}

async fn send_migration(
    launcher: Arc<Launcher>,
    sender: &mpsc::Sender<Result<MigrationEvent, Status>>,
) {
    let mut last = 0;
    loop {
        let (number, events) = launcher.migration.record.after(last).await;
        last = number;
        for event in events {
            let is_last = matches!(event.event, Some(migration_event::Event::Ended(_)));
            if sender.send(Ok(event)).await.is_err() || is_last {
                return;
            }
        }
    }
}

async fn send_changes(
    launcher: Arc<Launcher>,
    sender: &mpsc::Sender<Result<DomainChange, Status>>,
) {
    let mut generation = 0;
    loop {
        let (now, domain) = launcher.inspection.domain_after(generation).await;
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
#[path = "tests/inspect.rs"]
mod tests;
