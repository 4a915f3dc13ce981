//! Calls to libvirt about the one domain. Each blocks and runs on a thread of the blocking pool.
//! A call for which virt-handler waits has a shorter time limit than virt-handler's, and the number
//! of calls has a limit.
//!
//! libvirt's daemon handles a limited number of a client's calls at a time (`max_client_requests`,
//! 5 if its configuration is not ours) and lets others wait. So that Kill always finds a free one,
//! hanging calls may take up at most four: [`MAX_READS`] reads, one change (changes take turns),
//! and [`MAX_REQUESTS`] immediate requests. Others come on top, so our own configuration allows 20:
//! calls to the guest agent, one at a time and a shutdown; a job's, of which a migration makes the
//! most (itself, its progress, its steps, its abort); the copy of the metadata.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::error::LauncherError;
use super::vm::{Permit, PermitKind, Vm};
use domain::DomainSpec;
use libvirt::{ChangeableDomain, Connection, DomainHandle, XmlKind};
use os::lock::lock;

/// Limit of reads; virt-handler waits 5 s.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of changes; virt-handler waits 20 s.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(19);
/// Reads that may hang at the same time; others wait, and fail in time.
pub(super) const MAX_READS: usize = 2;
/// Immediate requests, such as Reset, that may hang at the same time; others wait.
const MAX_REQUESTS: usize = 1;

/// A shutdown by the guest agent, in progress until dropped.
pub(crate) struct AgentShutdown(Arc<Mutex<Option<Instant>>>);

impl Drop for AgentShutdown {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// The connection, and the domain by its name.
pub(crate) struct LibvirtDomain {
    /// `<namespace>_<name>`.
    pub name: String,
    /// The state of the domain; it admits the changes.
    pub(super) vm: Arc<Vm>,
    connection: watch::Sender<Connection>,
    pub(super) reads: Arc<Semaphore>,
    pub(super) requests: Arc<Semaphore>,
    /// One at a time: hanging ones would take all threads.
    kills: Arc<Semaphore>,
    daemon_suspected: Notify,
    /// libvirt itself makes calls to the agent wait for each other.
    agent_calls: Arc<Semaphore>,
    agent_domain: Mutex<Option<DomainHandle>>,
    /// When a shutdown was requested of the agent.
    agent_shutdown: Arc<Mutex<Option<Instant>>>,
    /// Held by whoever writes the metadata: the last copy has the newest.
    pub(super) metadata_copies: tokio::sync::Mutex<()>,
}

impl LibvirtDomain {
    pub fn new(name: String, connection: Connection, vm: Arc<Vm>) -> Self {
        Self {
            name,
            vm,
            connection: watch::Sender::new(connection),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            kills: Arc::new(Semaphore::new(1)),
            daemon_suspected: Notify::new(),
            agent_calls: Arc::new(Semaphore::new(1)),
            agent_domain: Mutex::default(),
            metadata_copies: tokio::sync::Mutex::default(),
            agent_shutdown: Arc::default(),
        }
    }

    /// The current connection.
    pub fn connection(&self) -> Connection {
        self.connection.borrow().clone()
    }

    /// Changes when libvirt is back on a new connection.
    pub fn connections(&self) -> watch::Receiver<Connection> {
        self.connection.subscribe()
    }

    /// Replaces the lost connection.
    pub fn replace(&self, connection: Connection) {
        self.connection.send_replace(connection);
        *lock(&self.agent_domain) = None;
    }

    /// Waits until the daemon may hang: a call has exceeded its limit, or failed for want of a
    /// connection that is not known to be closed.
    pub async fn daemon_suspected(&self) {
        self.daemon_suspected.notified().await;
    }

    /// Suspects the daemon if a call's error fits one that hangs or a dead connection.
    fn suspect_daemon<T>(&self, result: Result<T, LauncherError>) -> Result<T, LauncherError> {
        if let Err(error) = &result
            && (matches!(error, LauncherError::Slow { .. }) || error.is_connection_lost())
        {
            self.daemon_suspected.notify_one();
        }
        result
    }

    /// Makes a read, which changes nothing.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] after [`READ_TIMEOUT`].
    pub async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Connection, &str) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let read = limited(what, READ_TIMEOUT, &self.reads, self.call(work)).await;
        self.suspect_daemon(read)
    }

    /// Calls the guest agent. Calls run one at a time, in the order they come; no other calls wait
    /// for them.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] after `limit`, including the wait for earlier
    /// calls.
    pub async fn agent_call<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        limit: Duration,
        work: impl FnOnce(&DomainHandle) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let this = self.clone();
        let work = move || {
            let result = work(&this.agent_domain()?);
            if let Err(LauncherError::Libvirt(error)) = &result
                && (error.is_no_domain() || error.is_connection_lost())
            {
                *lock(&this.agent_domain) = None;
            }
            result
        };
        // If only the agent is silent, checking the daemon costs one connection to it.
        let answer = limited(what, limit, &self.agent_calls, work).await;
        self.suspect_daemon(answer)
    }

    /// The domain for calls to its agent, looked up once: most of them come at regular intervals.
    fn agent_domain(&self) -> Result<DomainHandle, LauncherError> {
        if let Some(domain) = &*lock(&self.agent_domain) {
            return Ok(domain.clone());
        }
        let domain = self.connection().lookup(&self.name)?;
        let domain = domain.ok_or(LauncherError::NoDomain)?;
        *lock(&self.agent_domain) = Some(domain.clone());
        Ok(domain)
    }

    /// Permits one shutdown by the guest agent at a time, as it may hang for a minute.
    ///
    /// # Errors
    /// Another one is in progress; for how long.
    pub fn begin_agent_shutdown(&self) -> Result<AgentShutdown, Duration> {
        let mut began = lock(&self.agent_shutdown);
        if let Some(began) = *began {
            return Err(began.elapsed());
        }
        *began = Some(Instant::now());
        Ok(AgentShutdown(self.agent_shutdown.clone()))
    }

    /// A change of the domain. It goes on, and keeps its turn if it has one, when the caller gives
    /// up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] after [`CHANGE_TIMEOUT`].
    pub async fn change<T: Send + 'static>(
        &self,
        permit: &Permit,
        what: &'static str,
        work: impl FnOnce(Option<ChangeableDomain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let work = self.lookup_changeable(permit, work);
        let done = match permit.kind() {
            PermitKind::AtOnce => limited(what, CHANGE_TIMEOUT, &self.requests, work).await,
            // Only one holds the turn, and a job makes its changes one after the other.
            PermitKind::InTurn { .. } | PermitKind::OfJob => {
                within(what, CHANGE_TIMEOUT, blocking(what, work)).await
            }
        };
        self.suspect_daemon(done)
    }

    /// Kills the domain without waiting for anything but a kill before it. It goes on if the caller
    /// gives up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] after [`CHANGE_TIMEOUT`].
    pub async fn kill(
        &self,
        permit: &Permit,
        work: impl FnOnce(Option<ChangeableDomain>) -> Result<(), LauncherError> + Send + 'static,
    ) -> Result<(), LauncherError> {
        let what = "killing the domain";
        let work = self.lookup_changeable(permit, work);
        let done = limited(what, CHANGE_TIMEOUT, &self.kills, work).await;
        self.suspect_daemon(done)
    }

    /// A change that takes as long as libvirt does: nobody waits for its answer, or its caller has
    /// a limit.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn change_in_any_time<T: Send + 'static>(
        &self,
        permit: &Permit,
        what: &'static str,
        work: impl FnOnce(Option<ChangeableDomain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        blocking(what, self.lookup_changeable(permit, work)).await
    }

    /// A look at the domain that takes as long as libvirt does: its caller has a limit.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn read_in_any_time<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Connection, &str) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        blocking(what, self.call(work)).await
    }

    fn lookup_changeable<T>(
        &self,
        permit: &Permit,
        work: impl FnOnce(Option<ChangeableDomain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, LauncherError> + Send + 'static {
        let permit = permit.clone();
        self.call(move |connection, name| {
            let domain = connection.lookup(name)?;
            work(domain.map(|domain| domain.changeable(&permit)))
        })
    }

    fn call<T>(
        &self,
        work: impl FnOnce(&Connection, &str) -> Result<T, LauncherError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, LauncherError> + Send + 'static {
        // libvirt may be back on a new connection by the time of the call.
        let (connections, name) = (self.connections(), self.name.clone());
        move || {
            // Not in one expression: the guard would live through the call, and `replace` waits for
            // it.
            let connection = connections.borrow().clone();
            work(&connection, &name)
        }
    }
}

/// Runs `work` once there is a free slot, which is released when `work` returns, even if the caller
/// has given up.
async fn limited<T: Send + 'static>(
    what: &'static str,
    limit: Duration,
    slots: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    let slots = slots.clone();
    within(what, limit, async move {
        // Cannot fail: the semaphore is never closed.
        let slot = slots.acquire_owned().await;
        blocking(what, move || {
            let _slot = slot;
            work()
        })
        .await
    })
    .await
}

/// Runs blocking work to its end.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(LauncherError::Worker { what }))
}

/// Waits for `work`, at most for `limit`. What it has spawned goes on.
pub(super) async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, LauncherError>>,
) -> Result<T, LauncherError> {
    timeout(limit, work)
        .await
        .unwrap_or(Err(LauncherError::Slow { what, after: limit }))
}

/// The domain's definition in libvirt. Blocks.
pub(super) fn read_spec(domain: &DomainHandle, kind: XmlKind) -> Result<DomainSpec, LauncherError> {
    DomainSpec::from_xml(&domain.xml(kind)?).map_err(LauncherError::Xml)
}
