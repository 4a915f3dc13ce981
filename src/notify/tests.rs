//! The notifier with a virt-handler of the test.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Response, Status};

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

struct Manners {
    versions: Vec<u32>,
    /// Answers `success: false` with this message.
    declines: Option<&'static str>,
    /// Breaks the connection when a message begins with this.
    breaks_on: Option<&'static str>,
    /// Number of connections so far.
    connections: AtomicUsize,
    /// Fails the first call.
    fails: Mutex<Option<Code>>,
    /// Answers only when this is true.
    open: Option<watch::Receiver<bool>>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            versions: vec![1],
            declines: None,
            breaks_on: None,
            connections: AtomicUsize::new(0),
            fails: Mutex::default(),
            open: None,
        }
    }
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
        if breaks {
            // Ends the connection; a panic's backtrace may take longer than an answer may.
            std::panic::resume_unwind(Box::new(()));
        }
        if let Some(code) = lock(&self.manners.fails).take() {
            return Err(Status::new(code, "no such VMI"));
        }
        Ok(Response::new(Answer {
            success: self.manners.declines.is_none(),
            message: self.manners.declines.unwrap_or_default().to_owned(),
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
        let is_there = domain["ObjectMeta"]["deletionTimestamp"].is_null();
        let gone = if is_there { "" } else { " gone" };
        let status = domain["Status"]["Status"].as_str().unwrap();
        let what = format!("{} {status}{gone}", request.event_type);
        self.answer(what).await
    }
    async fn handle_k8s_event(
        &self,
        request: Request<K8sEventRequest>,
    ) -> Result<Response<Answer>, Status> {
        let event: Value = serde_json::from_slice(&request.into_inner().event_json).unwrap();
        let text = |field: &str| event[field].as_str().unwrap();
        let what = format!("{}: {}", text("reason"), text("message"));
        self.answer(what).await
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
                let server = tonic::service::Routes::default()
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
        Self::start(socket, Arc::default())
    }

    pub(crate) async fn next(&mut self) -> String {
        timeout(SOON, self.received.recv())
            .await
            .expect("virt-handler received nothing")
            .unwrap()
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

/// A notifier, and the socket at which it expects virt-handler.
struct Waiting {
    notifier: Notifier,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

fn waiting() -> Waiting {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("share").join(api::pod_paths::NOTIFY_SOCKET);
    let (notifier, task) = Notifier::new(socket.clone(), dir.path().join("unused"), "u-1");
    tokio::spawn(task);
    std::fs::create_dir(dir.path().join("share")).unwrap();
    Waiting {
        notifier,
        socket,
        _dir: dir,
    }
}

impl Waiting {
    fn publish(&self, states: &[&str]) {
        for state in states {
            self.notifier.publish(&domain(state), EventType::Modified);
        }
    }

    fn publish_added(&self) {
        self.notifier.publish(&domain("Running"), EventType::Added);
    }

    /// Whether virt-handler has all of them within this time.
    async fn flush(&self, limit: Duration) -> bool {
        self.notifier.flush(Instant::now() + limit).await
    }
}

#[tokio::test]
// D-vm-10 (docs/differences.md).
async fn a_handler_that_comes_late_hears_all_that_matters_in_order() {
    let at = waiting();
    at.publish_added();
    at.publish(&["Running", "Paused", "Shutoff"]);
    at.notifier.publish(&gone(), EventType::Modified);
    // The task has tried by now and found nothing.
    assert!(!at.flush(Duration::from_millis(50)).await);
    let mut handler = Handler::polite(&at.socket);
    for expected in [
        "ADDED Running",
        "MODIFIED Paused",
        "MODIFIED Shutoff",
        "MODIFIED NoState gone",
    ] {
        assert_eq!(handler.next().await, expected);
    }
    assert!(at.flush(SOON).await);
}

#[tokio::test]
async fn a_handler_that_restarts_hears_the_present_state_again() {
    let at = waiting();
    let mut handler = Handler::polite(&at.socket);
    at.publish_added();
    assert_eq!(handler.next().await, "ADDED Running");
    at.publish(&["Paused"]);
    assert_eq!(handler.next().await, "MODIFIED Paused");
    assert!(at.flush(SOON).await);
    drop(handler);
    let mut handler = Handler::polite(&at.socket);
    assert_eq!(handler.next().await, "MODIFIED Paused");
    at.publish(&["Running"]);
    assert_eq!(handler.next().await, "MODIFIED Running");
}

#[tokio::test]
async fn nobody_waits_for_a_handler_that_hangs() {
    let at = waiting();
    let (open, when) = watch::channel(false);
    let mut handler = Handler::start(
        &at.socket,
        Arc::new(Manners {
            open: Some(when),
            ..Manners::default()
        }),
    );
    at.publish_added();
    for _ in 0..100 {
        at.publish(&["Paused"]);
    }
    at.publish(&["Shutoff"]);
    open.send(true).unwrap();
    for expected in ["ADDED Running", "MODIFIED Paused", "MODIFIED Shutoff"] {
        assert_eq!(handler.next().await, expected);
    }
}

#[tokio::test]
// D-vm-11 (docs/differences.md).
async fn a_handler_that_declines_or_fails_does_not_hold_up_the_rest() {
    let at = waiting();
    let manners = Manners {
        declines: Some("VMI not found"),
        fails: Mutex::new(Some(Code::Unknown)),
        ..Manners::default()
    };
    let mut handler = Handler::start(&at.socket, Arc::new(manners));
    at.publish_added();
    assert_eq!(handler.next().await, "ADDED Running");
    assert!(at.flush(SOON).await);
    at.publish(&["Paused", "Shutoff"]);
    assert_eq!(handler.next().await, "MODIFIED Paused");
    assert_eq!(handler.next().await, "MODIFIED Shutoff");
    assert!(at.flush(SOON).await);
    let counts = at.notifier.counts();
    assert_eq!((counts.dropped, counts.delivered), (3, 0));
}

#[tokio::test]
async fn an_aborted_call_is_tried_again_on_another_connection() {
    let at = waiting();
    let manners = Arc::new(Manners {
        fails: Mutex::new(Some(Code::Aborted)),
        ..Manners::default()
    });
    let mut handler = Handler::start(&at.socket, manners.clone());
    at.publish_added();
    for _ in 0..2 {
        assert_eq!(handler.next().await, "ADDED Running");
    }
    assert!(at.flush(SOON).await);
    assert_eq!(at.notifier.counts().delivered, 1);
    assert_eq!(manners.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_answer_without_success_and_message_is_a_success_as_in_v1_10() {
    let at = waiting();
    let manners = Manners {
        declines: Some(""),
        ..Manners::default()
    };
    let mut handler = Handler::start(&at.socket, Arc::new(manners));
    at.publish_added();
    assert_eq!(handler.next().await, "ADDED Running");
    assert!(at.flush(SOON).await);
    assert_eq!(at.notifier.counts().delivered, 1);
}

#[tokio::test]
async fn a_handler_that_breaks_on_an_event_gets_the_others_and_is_not_dialled_in_a_loop() {
    let at = waiting();
    let manners = Arc::new(Manners {
        breaks_on: Some("ADDED"),
        ..Manners::default()
    });
    let mut handler = Handler::start(&at.socket, manners.clone());
    at.publish_added();
    at.publish(&["Shutoff"]);
    for _ in 0..5 {
        assert_eq!(handler.next().await, "ADDED Running");
    }
    assert_eq!(handler.next().await, "MODIFIED Shutoff");
    assert_eq!(manners.connections.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn a_handler_of_another_version_gets_nothing() {
    let at = waiting();
    let mut stranger = Handler::start(
        &at.socket,
        Arc::new(Manners {
            versions: vec![2, 3],
            ..Manners::default()
        }),
    );
    at.publish_added();
    assert!(!at.flush(Duration::from_millis(100)).await);
    assert!(stranger.received.try_recv().is_err());
    drop(stranger);
    let mut handler = Handler::polite(&at.socket);
    assert_eq!(handler.next().await, "ADDED Running");
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_any_more_is_no_end() {
    let at = waiting();
    drop(UnixListener::bind(&at.socket).unwrap());
    at.publish_added();
    assert!(!at.flush(Duration::from_millis(50)).await);
    let mut handler = Handler::polite(&at.socket);
    assert_eq!(handler.next().await, "ADDED Running");
}

fn io_error(disk: &str) -> K8sEvent {
    K8sEvent {
        namespace: "ns1".into(),
        name: "vm1".into(),
        uid: "u-1".into(),
        reason: "IOerror",
        message: format!("VM Paused due to IO error at the volume: {disk}"),
    }
}

#[tokio::test]
// D-sup-16 (docs/differences.md).
async fn the_next_launcher_sends_the_kubernetes_events_that_wait() {
    let Waiting {
        notifier: unused,
        socket,
        _dir,
    } = waiting();
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
}

#[tokio::test]
async fn kubernetes_events_name_our_vmi() {
    let event = io_error("data");
    let written: Value = serde_json::from_slice(&event.to_json()).unwrap();
    assert_eq!(
        written,
        json!({"metadata": {}, "type": "Warning", "reason": "IOerror", "message": "VM Paused due to IO error at the volume: data",
            "involvedObject": {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "namespace": "ns1", "name": "vm1", "uid": "u-1"}})
    );
    let at = waiting();
    let mut handler = Handler::polite(&at.socket);
    at.notifier.k8s_event(&event);
    assert_eq!(
        handler.next().await,
        "IOerror: VM Paused due to IO error at the volume: data"
    );
}

#[tokio::test]
async fn an_answer_without_end_is_refused_when_it_is_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let manners = Manners {
        versions: (0..1 << 20).collect(),
        ..Manners::default()
    };
    let _handler = Handler::start(&socket, Arc::new(manners));
    let error = link::Link::open(&socket).await.unwrap_err().to_string();
    assert!(error.len() < 1000, "{} bytes", error.len());
}
