//! The notify socket, served as virt-handler serves it: what the launcher reports, as a stream. While `run` serves it,
//! others hear of it from `run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::client::show;
use super::stop::Stop;
use super::{CtlError, Output, Target, session};
use api::pod_paths::{NOTIFY_SOCKET, PodPaths};
use api::proto::notify::info::notify_info_server::{NotifyInfo, NotifyInfoServer};
use api::proto::notify::info::{NotifyInfoRequest, NotifyInfoResponse};
use api::proto::notify::v1::notify_server::{Notify, NotifyServer};
use api::proto::notify::v1::{DomainEventRequest, K8sEventRequest, Response as Accepted};

/// Where the launcher looks for the socket, below its root.
pub fn notify_socket() -> String {
    PodPaths::default().shared(NOTIFY_SOCKET).into()
}
/// Where `run` passes on what comes there, below its root.
pub const RELAY_SOCKET: &str = "/watch.sock";
/// How many reports a slow listener may be behind before it misses some.
const BEHIND: usize = 256;

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    target: Target,
    /// Serve a notify socket here
    #[arg(long)]
    listen: Option<PathBuf>,
    /// End after so many events
    #[arg(long)]
    count: Option<usize>,
}

/// Something the launcher reported.
#[derive(Debug, Clone)]
pub enum Report {
    /// A domain event.
    Domain {
        /// `ADDED`, `MODIFIED`, …
        kind: String,
        /// The Domain JSON, null if it is none.
        domain: Value,
        /// A status, with errors only.
        status: Value,
    },
    /// A Kubernetes event for the VMI.
    Event(Value),
}

impl Report {
    /// `Status.Status` of a domain event.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Domain { domain, .. } => domain.pointer("/Status/Status").and_then(Value::as_str),
            Self::Event(_) => None,
        }
    }

    /// Whether this is the last word: libvirt no longer knows the domain.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Domain { domain, .. } if domain.pointer("/ObjectMeta/deletionTimestamp").is_some_and(|at| !at.is_null()))
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Domain {
                kind,
                domain,
                status,
            } => json!({"eventType": kind, "domain": domain, "status": status}),
            Self::Event(event) => json!({"event": event}),
        }
    }

    fn from_json(mut value: Value) -> Self {
        if !value["event"].is_null() {
            return Self::Event(value["event"].take());
        }
        let kind = value["eventType"].as_str().unwrap_or_default().to_owned();
        Self::Domain {
            kind,
            domain: value["domain"].take(),
            status: value["status"].take(),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Domain { kind, domain, .. } => {
                let text = |pointer: &str| {
                    domain
                        .pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or("-")
                        .to_owned()
                };
                let last = if self.is_final() { "  (gone)" } else { "" };
                format!(
                    "{kind:<9} {}  {} ({}){last}",
                    text("/Spec/Name"),
                    text("/Status/Status"),
                    text("/Status/Reason")
                )
            }
            Self::Event(event) => {
                let text = |pointer: &str| {
                    event
                        .pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or("-")
                        .to_owned()
                };
                format!("EVENT     {}: {}", text("/reason"), text("/message"))
            }
        }
    }
}

/// What `run` hears from its launcher, for whoever wants to hear it too: the notify socket has one end only.
#[derive(Debug)]
pub struct Relay(broadcast::Sender<String>);

impl Relay {
    /// Serves at `path`.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(path: &Path) -> Result<Self, CtlError> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(CtlError::file("listen on", path))?;
        let (sender, _) = broadcast::channel(BEHIND);
        let reports = sender.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(tell(stream, reports.subscribe()));
            }
        });
        Ok(Self(sender))
    }

    /// Tells everybody.
    pub fn pass_on(&self, report: &Report) {
        // Nobody may be listening.
        let _ = self.0.send(format!("{}\n", report.to_json()));
    }
}

async fn tell(mut stream: UnixStream, mut reports: broadcast::Receiver<String>) {
    loop {
        match reports.recv().await {
            Ok(line) if stream.write_all(line.as_bytes()).await.is_ok() => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            _ => return,
        }
    }
}

async fn hear(stream: UnixStream, reports: mpsc::UnboundedSender<Report>) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(value) = serde_json::from_str(&line)
            && reports.send(Report::from_json(value)).is_err()
        {
            return;
        }
    }
}

/// Serves a notify socket at `path`, replacing what is there; reports go to `reports`.
///
/// # Errors
/// If the socket cannot be made.
pub fn serve(path: &Path, reports: mpsc::UnboundedSender<Report>) -> Result<(), CtlError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(CtlError::file("make", directory))?;
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(CtlError::file("listen on", path))?;
    let server = Server::builder()
        .add_service(NotifyInfoServer::new(Versions))
        .add_service(NotifyServer::new(Reports(reports)));
    tokio::spawn(async move {
        server
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
    });
    Ok(())
}

/// `watch`: prints what the launcher reports.
///
/// # Errors
/// If the notify socket cannot be served.
pub async fn watch(args: WatchArgs, output: Output) -> Result<ExitCode, CtlError> {
    let mut stop = Stop::listen().map_err(CtlError::Runtime)?;
    let (sender, mut reports) = mpsc::unbounded_channel();
    let served = listen(&args, sender).await?;
    let mut left = args.count.unwrap_or(usize::MAX);
    while left > 0 {
        let report = tokio::select! {
            report = reports.recv() => report,
            () = stop.asked() => None,
        };
        let Some(report) = report else { break };
        show(output, &report.to_json(), || report.to_text());
        left -= 1;
    }
    if let Some(path) = served {
        let _ = std::fs::remove_file(&path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Listens to the `run` that has started the launcher, else serves the notify socket, which is then returned.
async fn listen(
    args: &WatchArgs,
    reports: mpsc::UnboundedSender<Report>,
) -> Result<Option<PathBuf>, CtlError> {
    let path = match &args.listen {
        Some(path) => path.clone(),
        None => match session::resolve(&args.target)?.0 {
            Some(session) => {
                if let Ok(stream) = UnixStream::connect(session.path(RELAY_SOCKET)).await {
                    tokio::spawn(hear(stream, reports));
                    return Ok(None);
                }
                session.path(&notify_socket())
            }
            None => PathBuf::from(notify_socket()),
        },
    };
    if UnixStream::connect(&path).await.is_ok() {
        return Err(CtlError::Target(format!(
            "{} is served already, as by virt-handler, which would then miss what is printed here; launcherctl domain shows the state",
            path.display()
        )));
    }
    serve(&path, reports)?;
    Ok(Some(path))
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

struct Reports(mpsc::UnboundedSender<Report>);

impl Reports {
    fn pass_on(&self, report: Report) -> Response<Accepted> {
        // Nobody listens any more while the program ends.
        let success = self.0.send(report).is_ok();
        Response::new(Accepted {
            success,
            message: String::new(),
        })
    }
}

#[tonic::async_trait]
impl Notify for Reports {
    async fn handle_domain_event(
        &self,
        request: Request<DomainEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        let request = request.into_inner();
        let (domain, status) = (parse(&request.domain_json)?, parse(&request.status_json)?);
        Ok(self.pass_on(Report::Domain {
            kind: request.event_type,
            domain,
            status,
        }))
    }

    async fn handle_k8s_event(
        &self,
        request: Request<K8sEventRequest>,
    ) -> Result<Response<Accepted>, Status> {
        Ok(self.pass_on(Report::Event(parse(&request.into_inner().event_json)?)))
    }
}

fn parse(json: &Bytes) -> Result<Value, Status> {
    if json.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(json).map_err(|e| Status::invalid_argument(format!("no JSON: {e}")))
}
