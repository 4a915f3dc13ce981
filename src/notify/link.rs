//! One connection to virt-handler's notify service.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::queue::Body;
use api::proto::notify::info::NotifyInfoRequest;
use api::proto::notify::info::notify_info_client::NotifyInfoClient;
use api::proto::notify::v1::notify_client::NotifyClient;
use api::proto::notify::v1::{DomainEventRequest, K8sEventRequest, Response};
use os::grpc::{self, Kept};

/// The notify service's version, which must be one of virt-handler's `supportedNotifyVersions`.
const VERSION: u32 = 1;
/// Limit of each of virt-handler's answers, as in the reference.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of each of them.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Why a notification was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{path}: cannot be connected to")]
    Dial { path: PathBuf, source: io::Error },
    #[error("{path}: the peer does not speak HTTP/2")]
    Handshake {
        path: PathBuf,
        source: tonic::transport::Error,
    },
    #[error(
        "virt-handler speaks the versions {theirs:?} of the notify service; this launcher needs {VERSION}"
    )]
    Version { theirs: Vec<u32> },
    #[error("virt-handler has not answered within {} s", ANSWER_TIMEOUT.as_secs())]
    Slow,
    #[error("the connection broke: {}", .0.message())]
    Broken(tonic::Status),
    #[error("virt-handler refused the call: {}", .0.message())]
    Refused(tonic::Status),
}

impl From<tonic::Status> for LinkError {
    fn from(status: tonic::Status) -> Self {
        use tonic::Code;
        match status.code() {
            // tonic's codes for a lost connection, and those that KubeVirt v1.10 tries again.
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => {
                Self::Broken(status)
            }
            // An error of the connection, not an answer.
            _ if std::error::Error::source(&status).is_some() => Self::Broken(status),
            _ => Self::Refused(status),
        }
    }
}

/// A connection to a peer with our version.
#[derive(Debug)]
pub(super) struct Link {
    client: NotifyClient<Channel>,
    gone: oneshot::Receiver<()>,
}

impl Link {
    /// Connects to the socket and checks the versions.
    pub async fn open(socket: &Path) -> Result<Self, LinkError> {
        let dialled = timeout(ANSWER_TIMEOUT, grpc::connect_stream(socket)).await;
        let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = dialled.map_err(|source| LinkError::Dial {
            path: socket.to_owned(),
            source,
        })?;
        // tonic drops the stream silently when the peer closes it.
        let (alive, gone) = oneshot::channel();
        // One stream per channel: tonic must not reconnect by itself, as a new connection has to
        // get the state again.
        let channel =
            grpc::channel(Kept(stream, alive))
                .await
                .map_err(|source| LinkError::Handshake {
                    path: socket.to_owned(),
                    source,
                })?;
        let info = NotifyInfoClient::new(channel.clone());
        let mut info = info.max_decoding_message_size(MAX_ANSWER_BYTES);
        let answer = timeout(ANSWER_TIMEOUT, info.info(NotifyInfoRequest {}))
            .await
            .map_err(|_| LinkError::Slow)??;
        let theirs = answer.into_inner().supported_notify_versions;
        if !theirs.contains(&VERSION) {
            return Err(LinkError::Version { theirs });
        }
        Ok(Self {
            client: NotifyClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES),
            gone,
        })
    }

    /// Sends one entry (`HandleDomainEvent`, `HandleK8sEvent`) and returns virt-handler's answer.
    pub async fn send(&mut self, body: Body) -> Result<Response, LinkError> {
        let answer = async {
            match body {
                Body::Domain(domain_json, kind) => {
                    let event_type = kind.as_str().to_owned();
                    let request = DomainEventRequest {
                        domain_json,
                        event_type,
                        ..DomainEventRequest::default()
                    };
                    self.client.handle_domain_event(request).await
                }
                Body::K8s(event_json) => {
                    self.client
                        .handle_k8s_event(K8sEventRequest { event_json })
                        .await
                }
            }
        };
        Ok(timeout(ANSWER_TIMEOUT, answer)
            .await
            .map_err(|_| LinkError::Slow)??
            .into_inner())
    }

    /// Waits until the peer closes the connection.
    pub async fn closed(&mut self) {
        // Either outcome means that the stream was dropped.
        let _ = (&mut self.gone).await;
    }
}
