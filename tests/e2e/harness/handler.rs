//! virt-handler's end of the notify channel.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use api::proto::notify::info::notify_info_server::{NotifyInfo, NotifyInfoServer};
use api::proto::notify::info::{NotifyInfoRequest, NotifyInfoResponse};
use api::proto::notify::v1::notify_server::{Notify, NotifyServer};
use api::proto::notify::v1::{DomainEventRequest, K8sEventRequest, Response as Accepted};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::Notify as Changed;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

use super::TEST_TIMEOUT;

/// A domain event as it arrived.
#[derive(Debug, Clone)]
pub struct Event {
    pub kind: String,
    pub domain: Value,
}

impl Event {
    pub fn status(&self) -> &str {
        self.domain["Status"]["Status"].as_str().unwrap_or_default()
    }

    pub fn reason(&self) -> &str {
        self.domain["Status"]["Reason"].as_str().unwrap_or_default()
    }

    /// The guest's agent is connected.
    pub fn has_agent(&self) -> bool {
        has_agent(&self.domain)
    }

    pub fn is_final(&self) -> bool {
        !self.domain["ObjectMeta"]["deletionTimestamp"].is_null()
    }
}

pub fn has_agent(domain: &Value) -> bool {
    domain.to_string().contains(r#""State":"connected""#)
}

#[derive(Default)]
struct Inbox {
    events: Mutex<Vec<Event>>,
    kubernetes: Mutex<Vec<Value>>,
    changed: Changed,
}

/// Collects what the launcher reports.
pub struct Handler {
    socket: PathBuf,
    inbox: Arc<Inbox>,
    server: Option<JoinHandle<()>>,
    seen: usize,
}

impl Handler {
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            inbox: Arc::default(),
            server: None,
            seen: 0,
        }
    }

    /// Another reader of the same events, from the first on.
    pub fn reader(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            ..Self::new(self.socket.clone())
        }
    }

    /// Makes the socket anew, as virt-handler does when it starts.
    pub fn serve(&mut self) {
        std::fs::create_dir_all(self.socket.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        super::give_to_qemu(&self.socket);
        let (info, notify) = (
            NotifyInfoServer::new(Version),
            NotifyServer::new(Service(self.inbox.clone())),
        );
        let server = tonic::service::Routes::default()
            .add_service(info)
            .add_service(notify);
        self.server = Some(tokio::spawn(async move {
            os::grpc::serve(server, listener, std::future::pending())
                .await
                .unwrap()
        }));
    }

    /// Goes away, as virt-handler does when it is updated.
    pub fn leave(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// The next event, after those taken before, for which `wanted` holds.
    pub async fn event(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let inbox = self.inbox.clone();
        let search = async {
            loop {
                let changed = inbox.changed.notified();
                {
                    let events = inbox.events.lock().unwrap();
                    while let Some(event) = events.get(self.seen) {
                        self.seen += 1;
                        if wanted(event) {
                            return event.clone();
                        }
                    }
                }
                changed.await;
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, search).await {
            Ok(event) => event,
            Err(_) => panic!(
                "no event {what}; there were {:#?}",
                self.all()
                    .iter()
                    .map(|e| (e.kind.clone(), e.status().to_owned()))
                    .collect::<Vec<_>>()
            ),
        }
    }

    /// The next event that says this of the domain.
    pub async fn status(&mut self, status: &str) -> Event {
        self.event(status, |event| event.status() == status).await
    }

    /// The next event with the guest's agent connected.
    pub async fn agent(&mut self) -> Event {
        self.event("with a connected agent", Event::has_agent).await
    }

    /// The first event of Kubernetes' with this reason.
    pub async fn k8s_event(&self, reason: &str) -> Value {
        let search = async {
            loop {
                let changed = self.inbox.changed.notified();
                if let Some(event) = self
                    .kubernetes()
                    .into_iter()
                    .find(|event| event["reason"] == reason)
                {
                    return event;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(TEST_TIMEOUT, search).await;
        found.unwrap_or_else(|_| panic!("no event {reason}; there were {:#?}", self.kubernetes()))
    }

    fn kubernetes(&self) -> Vec<Value> {
        self.inbox.kubernetes.lock().unwrap().clone()
    }

    /// What has arrived so far does not count for [`Self::event`].
    pub fn forget(&mut self) {
        self.seen = self.inbox.events.lock().unwrap().len();
    }

    /// What has arrived so far is dropped: a long test would keep all of it.
    pub fn discard(&mut self) {
        self.inbox.events.lock().unwrap().clear();
        self.seen = 0;
    }

    /// Everything that has arrived.
    pub fn all(&self) -> Vec<Event> {
        self.inbox.events.lock().unwrap().clone()
    }
}

struct Version;
#[tonic::async_trait]
impl NotifyInfo for Version {
    async fn info(
        &self,
        _: Request<NotifyInfoRequest>,
    ) -> Result<Response<NotifyInfoResponse>, Status> {
        Ok(Response::new(NotifyInfoResponse {
            supported_notify_versions: vec![1],
        }))
    }
}

struct Service(Arc<Inbox>);
#[tonic::async_trait]
impl Notify for Service {
    async fn handle_domain_event(
        &self,
        request: Request<DomainEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        let request = request.into_inner();
        let domain = serde_json::from_slice(&request.domain_json)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        self.0.events.lock().unwrap().push(Event {
            kind: request.event_type,
            domain,
        });
        self.0.changed.notify_waiters();
        Ok(Response::new(Accepted {
            success: true,
            message: String::new(),
        }))
    }

    async fn handle_k8s_event(
        &self,
        request: Request<K8sEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        let event = serde_json::from_slice(&request.into_inner().event_json)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        self.0.kubernetes.lock().unwrap().push(event);
        self.0.changed.notify_waiters();
        Ok(Response::new(Accepted {
            success: true,
            message: String::new(),
        }))
    }
}
