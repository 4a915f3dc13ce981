//! The protocol between a VM's supervisor and its clients: `run`, which started it, and `stop`.
//! Both sides write lines.
//!
//! ```text
//!  client ── stop │ force │ detach ──────────────────► supervisor
//!  client ◄─ updates, as JSON, the last one is final ── supervisor
//! ```
//!
//! The client that started the supervisor owns the VM until it detaches: when it disconnects, even
//! by kill -9, the VM is stopped.

use std::path::Path;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use super::vm_dir::{CONTROL_SOCKET, VmDir};
use crate::error::CtlError;
use crate::files::{FileError, listen};
use os::accept::Acceptor;
use os::lines::Lines;
use os::process::Process;
use os::signals::EndSignals;

/// Updates queued for a slow client, which misses the oldest beyond that.
const MAX_QUEUED: usize = 256;
/// Limit of a client's requests in all.
const MAX_REQUEST_BYTES: u64 = 4096;
/// Limit for the supervisor to report its VM's progress.
const CURRENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit for clients to read the last updates.
const LAST_UPDATES_TIMEOUT: Duration = Duration::from_secs(2);

/// Progress of a VM, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RunPhase {
    /// The launcher answers calls.
    LauncherReady,
    /// Like [`Self::LauncherReady`], for the target of a migration.
    TargetReady,
    /// The domain runs.
    DomainRunning,
    /// The guest has arrived by a migration.
    GuestArrived,
    /// The text of `--until` has appeared on the console.
    GuestUp,
    /// The guest is asked to shut down.
    ShutdownRequested,
    /// The guest has ended.
    GuestDown,
    /// The launcher has ended.
    LauncherEnded,
}

impl RunPhase {
    /// Whether the VM is ending or its guest has ended.
    pub fn is_ending(self) -> bool {
        self >= Self::ShutdownRequested
    }

    /// The text in the output.
    pub fn text(self) -> &'static str {
        match self {
            Self::LauncherReady => "launcher is ready",
            Self::TargetReady => "launcher of the target is ready",
            Self::DomainRunning => "domain is running",
            Self::GuestArrived => "guest has arrived",
            Self::GuestUp => "guest is up",
            Self::ShutdownRequested => "guest is asked to shut down",
            Self::GuestDown => "guest is down",
            Self::LauncherEnded => "launcher has ended",
        }
    }
}

/// A report of the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Update {
    /// The first report: the last phase reached, or that its end was requested.
    Current(Option<RunPhase>),
    /// A phase has been reached.
    Phase { phase: RunPhase },
    /// A remark.
    Note(String),
    /// The guest's console can be connected to, if it has one.
    Console(bool),
    /// The VM has ended, and nothing of it remains; why `run` fails, if it does.
    Ended(Option<String>),
    /// The VM could not be started, or was lost.
    Failed {
        /// The error with its causes.
        message: String,
        /// Further lines about it.
        details: Vec<String>,
    },
}

/// What a client wants; a later one includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ControlRequest {
    /// The VM outlives this client.
    Detach,
    /// Shut the guest down; repeating this changes nothing.
    Stop,
    /// Force the guest off.
    Force,
}

/// Sends the supervisor's reports.
#[derive(Debug, Clone)]
pub struct RunProgress {
    clients: broadcast::Sender<Update>,
    /// Given to later clients first.
    phase: watch::Sender<Option<RunPhase>>,
}

impl RunProgress {
    pub fn phase(&self, phase: RunPhase) {
        self.phase.send_replace(Some(phase));
        self.send(Update::Phase { phase });
    }

    pub fn note(&self, text: &str) {
        self.send(Update::Note(text.to_owned()));
    }

    pub fn send(&self, update: Update) {
        // There may be no client.
        let _ = self.clients.send(update);
    }
}

/// Requests from clients and signals to end the VM: the strongest one so far.
#[derive(Debug, Clone)]
pub struct StopRequests(watch::Receiver<Option<ControlRequest>>);

impl StopRequests {
    /// Waits for a request to end the VM, or returns at once if there was one.
    pub async fn requested(&mut self) {
        self.at_least(ControlRequest::Stop).await;
    }

    /// Waits for a request to force the VM off.
    pub async fn forced(&mut self) {
        self.at_least(ControlRequest::Force).await;
    }

    async fn at_least(&mut self, wanted: ControlRequest) {
        // It has a sender as long as clients are accepted.
        let is_reached = |strongest: &Option<ControlRequest>| *strongest >= Some(wanted);
        let _ = self.0.wait_for(is_reached).await;
    }
}

/// The strongest request so far.
type Strongest = watch::Sender<Option<ControlRequest>>;

/// Notes a request, unless there was one at least as strong.
fn note(strongest: &Strongest, request: ControlRequest) {
    strongest.send_modify(|strongest| *strongest = (*strongest).max(Some(request)));
}

/// The first signal shuts the guest down, the second forces it off.
async fn serve_signals(mut signals: EndSignals, requests: Strongest) {
    for request in [ControlRequest::Stop, ControlRequest::Force] {
        signals.next().await;
        note(&requests, request);
    }
}

/// The supervisor's side.
#[derive(Debug)]
pub struct Control {
    pub progress: RunProgress,
    /// Accepts clients, also when all have gone.
    acceptor: JoinHandle<()>,
}

impl Control {
    /// Serves the owner, all clients of `socket`, and `signals`, unless the owner in the same
    /// process handles them.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn serve(
        socket: &Path,
        owner: UnixStream,
        signals: Option<EndSignals>,
    ) -> Result<(Self, StopRequests), FileError> {
        let mut connections = Acceptor::new(listen(socket)?, "the supervisor's socket");
        let progress = RunProgress {
            clients: broadcast::Sender::new(MAX_QUEUED),
            phase: watch::Sender::new(None),
        };
        let (requests, stop) = watch::channel(None);
        if let Some(signals) = signals {
            tokio::spawn(serve_signals(signals, requests.clone()));
        }
        let of_clients = progress.clone();
        let serve = move |stream, is_owner| {
            let updates = of_clients.clients.subscribe();
            let phase = *of_clients.phase.borrow();
            let is_requested = *requests.borrow() >= Some(ControlRequest::Stop);
            let current = phase.max(is_requested.then_some(RunPhase::ShutdownRequested));
            let client = serve_client(stream, current, updates, requests.clone(), is_owner);
            tokio::spawn(client);
        };
        serve(owner, true);
        let acceptor = tokio::spawn(async move {
            loop {
                serve(connections.accept().await, false);
            }
        });
        Ok((Self { progress, acceptor }, StopRequests(stop)))
    }

    /// Sends the last update, and waits until the clients have read it.
    pub async fn finish(self, last: Update) {
        self.acceptor.abort();
        self.progress.send(last);
        let _ = timeout(LAST_UPDATES_TIMEOUT, self.progress.clients.closed()).await;
    }
}

/// Serves a client until it has the last update.
async fn serve_client(
    stream: UnixStream,
    current: Option<RunPhase>,
    mut updates: broadcast::Receiver<Update>,
    strongest: Strongest,
    mut is_owner: bool,
) {
    let (read, mut write) = stream.into_split();
    let mut requests = Lines::new(read.take(MAX_REQUEST_BYTES));
    let mut is_reading = true;
    // Reading its requests detects a disconnected client.
    drop(write.write_all(&line(&Update::Current(current))).await);
    loop {
        tokio::select! {
            update = updates.recv() => match update {
                Ok(update) => {
                    let written = write.write_all(&line(&update)).await;
                    let is_last = matches!(update, Update::Ended(_) | Update::Failed { .. });
                    // While it is read, a request that it left may still arrive.
                    if is_last || (written.is_err() && !is_reading) {
                        return;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
            request = requests.next(), if is_reading => {
                is_reading = request.is_some();
                // The end of its owner's requests stops the VM.
                let at_end = is_owner.then_some(ControlRequest::Stop);
                let parsed = request.map_or(at_end, |line| serde_json::from_str(&line).ok());
                if let Some(request) = parsed {
                    is_owner = false;
                    note(&strongest, request);
                }
            }
        }
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Why a supervisor's VM did not end normally.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The supervisor reports a failure; its causes are in the message.
    #[error("{0}")]
    Failed(String),
    /// The supervisor was killed or crashed.
    #[error(
        "the process that supervises {0} was killed or has crashed; launcherctl list shows whether its guest runs, launcherctl stop {0} shuts it down and removes what is left"
    )]
    Lost(String),
}

/// A client's side.
#[derive(Debug)]
pub struct ControlClient {
    /// The VM's name.
    name: String,
    updates: Lines<OwnedReadHalf>,
    requests: OwnedWriteHalf,
}

impl ControlClient {
    /// Over a stream to the supervisor of the VM in `dir`.
    pub fn new(stream: UnixStream, dir: &VmDir) -> Self {
        let (read, requests) = stream.into_split();
        Self {
            name: dir.name(),
            updates: Lines::new(read),
            requests,
        }
    }

    /// To the supervisor of the VM in `dir`, if it has one.
    pub async fn connect(dir: &VmDir) -> Option<Self> {
        let stream = UnixStream::connect(dir.path(CONTROL_SOCKET)).await;
        Some(Self::new(stream.ok()?, dir))
    }

    /// The supervisor's process.
    pub fn process(&self) -> Option<Process> {
        let peer = self.requests.as_ref().peer_cred().ok()?;
        Process::open(Pid::from_raw(peer.pid()?)?).ok()
    }

    /// The progress that the supervisor of the VM in `dir` reports; `None` without a supervisor.
    pub async fn current(dir: &VmDir) -> Option<Option<RunPhase>> {
        let mut client = Self::connect(dir).await?;
        match timeout(CURRENT_TIMEOUT, client.next()).await {
            Ok(Ok(Update::Current(current))) => Some(current),
            // It has just ended.
            Ok(Err(_)) => None,
            _ => Some(None),
        }
    }

    /// Waits for the supervisor of the VM in `dir` to end, at most for `limit`.
    pub async fn wait_for_end(dir: &VmDir, limit: Duration) {
        if let Some(mut client) = Self::connect(dir).await {
            let ended = async { while client.next().await.is_ok() {} };
            let _ = timeout(limit, ended).await;
        }
    }

    /// The next update but [`Update::Failed`]. Cancel safe.
    ///
    /// # Errors
    /// [`SupervisorError`].
    pub async fn next(&mut self) -> Result<Update, CtlError> {
        while let Some(line) = self.updates.next().await {
            match serde_json::from_str(&line) {
                Ok(Update::Failed { message, details }) => {
                    let failed = CtlError::from(SupervisorError::Failed(message));
                    return Err(failed.with_details(details));
                }
                Ok(update) => return Ok(update),
                Err(_) => {}
            }
        }
        Err(SupervisorError::Lost(self.name.clone()).into())
    }

    pub async fn request(&mut self, request: ControlRequest) {
        // Reading its updates detects that the supervisor has ended.
        let _ = self.requests.write_all(&line(&request)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> VmDir {
        VmDir::at("/nonexistent".into()).named("web".to_owned())
    }

    async fn serve(socket: &Path) -> (Control, StopRequests, ControlClient) {
        let (owner, client) = UnixStream::pair().unwrap();
        let (control, stop) = Control::serve(socket, owner, None).unwrap();
        (control, stop, ControlClient::new(client, &vm()))
    }

    /// Whether a stop was requested once all clients have been read.
    async fn is_requested(stop: &mut StopRequests) -> bool {
        timeout(Duration::from_millis(100), stop.requested())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn the_vm_is_stopped_when_its_owner_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (_control, mut stop, owner) = serve(&dir.path().join("control.sock")).await;
        drop(owner);
        stop.requested().await;
    }

    #[tokio::test]
    async fn a_vm_outlives_an_owner_that_has_detached_and_any_other_client() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let (_control, mut stop, mut owner) = serve(&socket).await;
        owner.request(ControlRequest::Detach).await;
        drop(owner);
        drop(UnixStream::connect(&socket).await.unwrap());
        assert!(!is_requested(&mut stop).await);
        ControlClient::new(UnixStream::connect(&socket).await.unwrap(), &vm())
            .request(ControlRequest::Stop)
            .await;
        stop.requested().await;
    }

    #[tokio::test]
    async fn clients_that_are_gone_are_forgotten_and_later_ones_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let (control, mut stop, mut owner) = serve(&socket).await;
        owner.request(ControlRequest::Detach).await;
        drop(owner);
        drop(UnixStream::connect(&socket).await.unwrap());
        while control.progress.clients.receiver_count() > 0 {
            control.progress.phase(RunPhase::DomainRunning);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut client = ControlClient::new(UnixStream::connect(&socket).await.unwrap(), &vm());
        client.request(ControlRequest::Stop).await;
        stop.requested().await;
    }

    #[tokio::test]
    async fn only_a_request_to_force_the_vm_off_does_so() {
        let dir = tempfile::tempdir().unwrap();
        let (_control, mut stop, mut owner) = serve(&dir.path().join("control.sock")).await;
        for _ in 0..3 {
            owner.request(ControlRequest::Stop).await;
        }
        stop.requested().await;
        let forced = timeout(Duration::from_millis(100), stop.forced()).await;
        assert!(
            forced.is_err(),
            "a second plain stop waits as the first does"
        );
        owner.request(ControlRequest::Force).await;
        stop.forced().await;
    }

    #[tokio::test]
    async fn a_client_begins_with_how_far_the_vm_is() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        assert_eq!(ControlClient::current(&vm).await, None);
        let (control, mut stop, mut owner) = serve(&vm.path(CONTROL_SOCKET)).await;
        let current = async || ControlClient::current(&vm).await.unwrap();
        assert_eq!(current().await, None);
        control.progress.phase(RunPhase::DomainRunning);
        assert_eq!(current().await, Some(RunPhase::DomainRunning));
        owner.request(ControlRequest::Stop).await;
        stop.requested().await;
        assert!(current().await.is_some_and(RunPhase::is_ending));
    }

    #[tokio::test]
    async fn every_client_gets_the_last_update() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let (control, mut stop, mut owner) = serve(&socket).await;
        let mut other = ControlClient::new(UnixStream::connect(&socket).await.unwrap(), &vm());
        other.request(ControlRequest::Stop).await;
        stop.requested().await;
        let finished = tokio::spawn(control.finish(Update::Ended(None)));
        for client in [&mut owner, &mut other] {
            let first = client.next().await.unwrap();
            assert!(matches!(first, Update::Current(_)));
            let last = client.next().await.unwrap();
            assert!(matches!(last, Update::Ended(None)));
            let lost = client.next().await.unwrap_err();
            assert!(matches!(lost.of(), Some(SupervisorError::Lost(name)) if name == "web"));
        }
        finished.await.unwrap();
    }
}
