#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! The notifier with a virt-handler of the test.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status};

use super::*;
use api::proto::notify::info::notify_info_server::{NotifyInfo, NotifyInfoServer};
use api::proto::notify::info::{NotifyInfoRequest, NotifyInfoResponse};
use api::proto::notify::v1::notify_server::{Notify as NotifyService, NotifyServer};
use api::proto::notify::v1::{DomainEventRequest, K8sEventRequest, Response as Answer};

/// A limit that only a failure reaches.
const SOON: Duration = Duration::from_secs(30);

/// A virt-handler: what it received, and how it behaves.
pub(crate) struct Handler {
    received: mpsc::UnboundedReceiver<String>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl Drop for Handler {
    /// Ends with all its connections.
    fn drop(&mut self) {
        self.stop.take();
        self.server.take().map(JoinHandle::join);
    }
}

#[derive(Default)]
struct Manners {
    versions: Vec<u32>,
    /// Answers `success: false`.
    declines: bool,
    /// Breaks the connection when a message begins with this.
    breaks_on: Option<&'static str>,
    /// Number of connections so far.
    connections: AtomicUsize,
    /// Fails each call.
    fails: AtomicBool,
    /// Answers only when this is true.
    open: Option<watch::Receiver<bool>>,
}

struct Service {
    sent: mpsc::UnboundedSender<String>,
    manners: Arc<Manners>,
}

impl Service {
    async fn answer(&self, what: String) -> Result<Response<Answer>, Status> {
        if let Some(mut open) = self.manners.open.clone() {
            open.wait_for(|open| *open).await.unwrap();
        }
        let breaks = self.manners.breaks_on;
        let breaks = breaks.is_some_and(|text| what.starts_with(text));
        self.sent.send(what).unwrap();
        assert!(!breaks, "this ends the connection");
        if self.manners.fails.load(Ordering::Relaxed) {
            return Err(Status::unknown("no such VMI"));
        }
        Ok(Response::new(Answer {
            success: !self.manners.declines,
            message: String::new(),
        }))
    }
}

#[tonic::async_trait]
impl NotifyService for Service {
    async fn handle_domain_event(
        &self,
        request: Request<DomainEventRequest>,
    ) -> Result<Response<Answer>, Status> {
        let request = request.into_inner();
        let domain: Value = serde_json::from_slice(&request.domain_json).unwrap();
        let gone = if domain["ObjectMeta"]["deletionTimestamp"].is_null() {
            ""
        } else {
            " gone"
        };
        self.answer(format!(
            "{} {}{gone}",
            request.event_type,
            domain["Status"]["Status"].as_str().unwrap()
        ))
        .await
    }
    async fn handle_k8s_event(
        &self,
        request: Request<K8sEventRequest>,
    ) -> Result<Response<Answer>, Status> {
        let event: Value = serde_json::from_slice(&request.into_inner().event_json).unwrap();
        self.answer(format!(
            "{}: {}",
            event["reason"].as_str().unwrap(),
            event["message"].as_str().unwrap()
        ))
        .await
    }
}

#[tonic::async_trait]
impl NotifyInfo for Service {
    async fn info(
        &self,
        _: Request<NotifyInfoRequest>,
    ) -> Result<Response<NotifyInfoResponse>, Status> {
        self.manners.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(NotifyInfoResponse {
            supported_notify_versions: self.manners.versions.clone(),
        }))
    }
}

impl Handler {
    fn start(socket: &Path, manners: Arc<Manners>) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (sent, received) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        listener.set_nonblocking(true).unwrap();
        // On its own runtime, whose end closes the connections, as the end of a process does.
        let server = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                let server = tonic::transport::Server::builder()
                    .add_service(NotifyServer::new(Service {
                        sent: sent.clone(),
                        manners: manners.clone(),
                    }))
                    .add_service(NotifyInfoServer::new(Service { sent, manners }));
                tokio::select! {
                    _ = stopped => {}
                    result = os::grpc::serve(server, listener, std::future::pending()) => result.unwrap(),
                }
            });
        });
        Self {
            received,
            stop: Some(stop),
            server: Some(server),
        }
    }

    pub(crate) fn polite(socket: &Path) -> Self {
        Self::start(
            socket,
            Arc::new(Manners {
                versions: vec![1],
                ..Manners::default()
            }),
        )
    }

    pub(crate) async fn next(&mut self) -> String {
        timeout(SOON, self.received.recv())
            .await
            .expect("virt-handler received nothing")
            .unwrap()
    }

    /// Forgets what it has received.
    pub(crate) fn forget(&mut self) {
        while self.received.try_recv().is_ok() {}
    }
}

fn domain(status: &str) -> Domain {
    let mut document = Domain::new("ns1", "vm1", "u-1");
    document.status.status = status.into();
    document
}

fn gone() -> Domain {
    let mut document = domain("NoState");
    document.meta.deletion_timestamp = Some("2026-01-02T03:04:05Z".parse().unwrap());
    document
}

fn with_notifier<F: Future<Output = ()>>(test: impl FnOnce(Notifier, PathBuf) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = dir.path().join("share").join(api::pod_paths::NOTIFY_SOCKET);
        let (notifier, task) = Notifier::new(socket.clone(), dir.path().join("unused"), "u-1");
        tokio::spawn(task);
        std::fs::create_dir(dir.path().join("share")).unwrap();
        test(notifier, socket).await;
    });
}

#[test]
// D-vm-10 (docs/differences.md).
fn a_handler_that_comes_late_hears_all_that_matters_in_order() {
    with_notifier(|notifier, socket| async move {
        notifier.publish(&domain("Running"), EventType::Added);
        notifier.publish(&domain("Running"), EventType::Modified);
        notifier.publish(&domain("Paused"), EventType::Modified);
        notifier.publish(&domain("Shutoff"), EventType::Modified);
        notifier.publish(&gone(), EventType::Modified);
        // The task has tried by now and found nothing.
        assert!(
            !notifier
                .flush(Instant::now() + Duration::from_millis(50))
                .await
        );
        let mut handler = Handler::polite(&socket);
        for expected in [
            "ADDED Running",
            "MODIFIED Paused",
            "MODIFIED Shutoff",
            "MODIFIED NoState gone",
        ] {
            assert_eq!(handler.next().await, expected);
        }
        assert!(notifier.flush(Instant::now() + SOON).await);
    });
}

#[test]
fn a_handler_that_restarts_hears_the_present_state_again() {
    with_notifier(|notifier, socket| async move {
        let mut handler = Handler::polite(&socket);
        notifier.publish(&domain("Running"), EventType::Added);
        assert_eq!(handler.next().await, "ADDED Running");
        notifier.publish(&domain("Paused"), EventType::Modified);
        assert_eq!(handler.next().await, "MODIFIED Paused");
        assert!(notifier.flush(Instant::now() + SOON).await);
        drop(handler);
        let mut handler = Handler::polite(&socket);
        assert_eq!(handler.next().await, "MODIFIED Paused");
        notifier.publish(&domain("Running"), EventType::Modified);
        assert_eq!(handler.next().await, "MODIFIED Running");
    });
}

#[test]
fn nobody_waits_for_a_handler_that_hangs() {
    with_notifier(|notifier, socket| async move {
        let (open, when) = watch::channel(false);
        let mut handler = Handler::start(
            &socket,
            Arc::new(Manners {
                versions: vec![1],
                open: Some(when),
                ..Manners::default()
            }),
        );
        notifier.publish(&domain("Running"), EventType::Added);
        for _ in 0..100 {
            notifier.publish(&domain("Paused"), EventType::Modified);
        }
        notifier.publish(&domain("Shutoff"), EventType::Modified);
        open.send(true).unwrap();
        for expected in ["ADDED Running", "MODIFIED Paused", "MODIFIED Shutoff"] {
            assert_eq!(handler.next().await, expected);
        }
    });
}

#[test]
// D-vm-11 (docs/differences.md).
fn a_handler_that_declines_or_fails_does_not_hold_up_the_rest() {
    with_notifier(|notifier, socket| async move {
        let manners = Arc::new(Manners {
            versions: vec![1],
            declines: true,
            fails: AtomicBool::new(true),
            ..Manners::default()
        });
        let mut handler = Handler::start(&socket, manners.clone());
        notifier.publish(&domain("Running"), EventType::Added);
        for _ in 0..3 {
            assert_eq!(handler.next().await, "ADDED Running");
        }
        assert!(notifier.flush(Instant::now() + SOON).await);
        manners.fails.store(false, Ordering::Relaxed);
        notifier.publish(&domain("Paused"), EventType::Modified);
        notifier.publish(&domain("Shutoff"), EventType::Modified);
        assert_eq!(handler.next().await, "MODIFIED Paused");
        assert_eq!(handler.next().await, "MODIFIED Shutoff");
    });
}

#[test]
fn a_handler_that_breaks_on_an_event_gets_the_others_and_is_not_dialled_in_a_loop() {
    with_notifier(|notifier, socket| async move {
        let manners = Arc::new(Manners {
            versions: vec![1],
            breaks_on: Some("ADDED"),
            ..Manners::default()
        });
        let mut handler = Handler::start(&socket, manners.clone());
        notifier.publish(&domain("Running"), EventType::Added);
        notifier.publish(&domain("Shutoff"), EventType::Modified);
        for _ in 0..5 {
            assert_eq!(handler.next().await, "ADDED Running");
        }
        assert_eq!(handler.next().await, "MODIFIED Shutoff");
        assert_eq!(manners.connections.load(Ordering::Relaxed), 6);
    });
}

#[test]
fn a_handler_of_another_version_gets_nothing() {
    with_notifier(|notifier, socket| async move {
        let mut stranger = Handler::start(
            &socket,
            Arc::new(Manners {
                versions: vec![2, 3],
                ..Manners::default()
            }),
        );
        notifier.publish(&domain("Running"), EventType::Added);
        assert!(
            !notifier
                .flush(Instant::now() + Duration::from_millis(100))
                .await
        );
        assert!(stranger.received.try_recv().is_err());
        drop(stranger);
        let mut handler = Handler::polite(&socket);
        assert_eq!(handler.next().await, "ADDED Running");
    });
}

#[test]
fn a_socket_that_nobody_listens_on_any_more_is_no_end() {
    with_notifier(|notifier, socket| async move {
        drop(UnixListener::bind(&socket).unwrap());
        notifier.publish(&domain("Running"), EventType::Added);
        assert!(
            !notifier
                .flush(Instant::now() + Duration::from_millis(50))
                .await
        );
        let mut handler = Handler::polite(&socket);
        assert_eq!(handler.next().await, "ADDED Running");
    });
}

fn io_error(disk: &str) -> K8sEvent {
    K8sEvent {
        namespace: "ns1".into(),
        name: "vm1".into(),
        uid: "u-1".into(),
        severity: Severity::Warning,
        reason: "IOerror",
        message: format!("VM Paused due to IO error at the volume: {disk}"),
    }
}

#[test]
// D-sup-16 (docs/differences.md).
fn the_next_launcher_sends_the_kubernetes_events_that_wait() {
    with_notifier(|unused, socket| async move {
        drop(unused);
        let file = socket.with_file_name("k8s-events");
        // Killed before virt-handler exists: its task never runs.
        let (killed, _) = Notifier::new(socket.clone(), file.clone(), "u-1");
        killed.k8s_event(&io_error("first"));
        killed.publish(&domain("Paused"), EventType::Modified);
        killed.k8s_event(&io_error("second"));

        let (next, task) = Notifier::new(socket.clone(), file.clone(), "u-1");
        tokio::spawn(task);
        next.publish(&domain("Running"), EventType::Added);
        let mut handler = Handler::polite(&socket);
        let text = |disk| format!("IOerror: {}", io_error(disk).message);
        for expected in [text("first"), text("second"), "ADDED Running".into()] {
            assert_eq!(handler.next().await, expected);
        }
        assert!(next.flush(Instant::now() + SOON).await);
        let (third, _) = Notifier::new(socket, file, "u-1");
        assert_eq!(third.counts().waiting, 0, "virt-handler has them");
    });
}

#[test]
fn kubernetes_events_name_our_vmi() {
    let event = io_error("data");
    let written: Value = serde_json::from_slice(&event.to_json()).unwrap();
    assert_eq!(
        written,
        json!({"metadata": {}, "type": "Warning", "reason": "IOerror", "message": "VM Paused due to IO error at the volume: data",
            "involvedObject": {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "namespace": "ns1", "name": "vm1", "uid": "u-1"}})
    );
    with_notifier(|notifier, socket| async move {
        let mut handler = Handler::polite(&socket);
        notifier.k8s_event(&event);
        assert_eq!(
            handler.next().await,
            "IOerror: VM Paused due to IO error at the volume: data"
        );
    });
}
