//! Calls to libvirt about the one domain. Each blocks, so each runs on a thread of the blocking pool; each has a limit in
//! time, below what virt-handler waits, and all together a limit in number.
//!
//! libvirt's daemon answers a limited number of a client's calls at a time (`max_client_requests`, 5 if its configuration
//! is not ours) and lets further ones wait. So that Kill always finds a free one, calls that hang may take up no more
//! than four: [`MAX_READS`] reads, one change (changes take turns), [`MAX_REQUESTS`] of the requests that run at once.
//! Calls to the guest agent come on top of them, one at a time and a shutdown: our own configuration allows 20.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::error::LauncherError;
use super::lock::lock;
use super::vm::{Job, Turn, Vm};
use domain::DomainSpec;
use libvirt::{Connection, Domain, XmlKind};

/// Answers to reads come within this; virt-handler waits 5 s.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// Answers to changes come within this; virt-handler waits 20 s.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(19);
/// Reads that may hang at the same time; further ones wait, and then answer from memory.
pub(super) const MAX_READS: usize = 2;
/// Requests that run at once, such as Reset, that may hang at the same time; further ones wait.
const MAX_REQUESTS: usize = 1;

/// A shutdown by the guest agent, until it is dropped.
pub(super) struct AgentShutdown(Arc<Mutex<Option<Instant>>>);

impl Drop for AgentShutdown {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// The connection, and the domain's name.
pub(super) struct LibvirtDomain {
    name: String,
    connection: watch::Sender<Connection>,
    pub(super) reads: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    slow_calls: Notify,
    /// libvirt itself makes calls to the agent wait for each other.
    agent_calls: Arc<Semaphore>,
    agent_domain: Mutex<Option<Domain>>,
    /// When a shutdown by the agent has begun.
    agent_shutdown: Arc<Mutex<Option<Instant>>>,
}

impl LibvirtDomain {
    pub fn new(name: String, connection: Connection) -> Self {
        Self {
            name,
            connection: watch::Sender::new(connection),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            slow_calls: Notify::new(),
            agent_calls: Arc::new(Semaphore::new(1)),
            agent_domain: Mutex::default(),
            agent_shutdown: Arc::default(),
        }
    }

    /// The domain's name, `<namespace>_<name>`.
    pub fn name(&self) -> &String {
        &self.name
    }

    /// The connection as it is now.
    pub fn connection(&self) -> Connection {
        self.connection.borrow().clone()
    }

    /// Changes when libvirt is back on another connection.
    pub fn connections(&self) -> watch::Receiver<Connection> {
        self.connection.subscribe()
    }

    /// libvirt is back on another connection.
    pub fn replace(&self, connection: Connection) {
        self.connection.send_replace(connection);
        *lock(&self.agent_domain) = None;
    }

    /// Waits until a call has taken longer than it may: the daemon may hang.
    pub async fn slow_call(&self) {
        self.slow_calls.notified().await;
    }

    fn note_slow<T>(&self, result: Result<T, LauncherError>) -> Result<T, LauncherError> {
        if let Err(LauncherError::Slow { .. }) = result {
            self.slow_calls.notify_one();
        }
        result
    }

    /// A read, which changes nothing.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than [`READ_TIMEOUT`].
    pub async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Connection, &str) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let read = limited(what, READ_TIMEOUT, &self.reads, self.call(work)).await;
        self.note_slow(read)
    }

    /// A request that runs at once, beside changes and jobs.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than [`CHANGE_TIMEOUT`].
    pub async fn request<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let done = limited(what, CHANGE_TIMEOUT, &self.requests, self.lookup(work)).await;
        self.note_slow(done)
    }

    /// A call to the guest agent. One at a time, in the order in which they come; none of the others waits for them.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than `limit` with what it waits for others.
    pub async fn agent_call<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        limit: Duration,
        work: impl FnOnce(&Domain) -> Result<T, LauncherError> + Send + 'static,
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
        limited(what, limit, &self.agent_calls, work).await
    }

    /// The domain for calls to its agent: looked up once, as most of them are made at regular intervals.
    fn agent_domain(&self) -> Result<Domain, LauncherError> {
        if let Some(domain) = &*lock(&self.agent_domain) {
            return Ok(domain.clone());
        }
        let connection = self.connection();
        let domain = connection
            .lookup(&self.name)?
            .ok_or(LauncherError::NoDomain)?;
        *lock(&self.agent_domain) = Some(domain.clone());
        Ok(domain)
    }

    /// Permits one shutdown by the guest agent at a time, as it may hang for a minute.
    ///
    /// # Errors
    /// Another one is in progress, for so long already.
    pub fn begin_agent_shutdown(&self) -> Result<AgentShutdown, Duration> {
        let mut began = lock(&self.agent_shutdown);
        if let Some(began) = *began {
            return Err(began.elapsed());
        }
        *began = Some(Instant::now());
        Ok(AgentShutdown(self.agent_shutdown.clone()))
    }

    /// A change of the domain: waits for its turn, which ends with the change, also when the caller has given up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Busy`] when another change takes longer than [`CHANGE_TIMEOUT`], and
    /// [`LauncherError::Slow`] when this one does.
    pub async fn in_turn<T: Send + 'static>(
        &self,
        vm: &Vm,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let Ok(turn) = timeout(CHANGE_TIMEOUT, vm.turn()).await else {
            return Err(LauncherError::Busy { what });
        };
        self.change(&turn, what, work).await
    }

    /// A change of the domain by one who has the turn. It goes on, and keeps the turn, when the caller gives up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than [`CHANGE_TIMEOUT`].
    pub async fn change<T: Send + 'static>(
        &self,
        turn: &Turn,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let turn = turn.clone();
        self.to_end(what, move |domain| {
            let _turn = turn;
            work(domain)
        })
        .await
    }

    /// A change that belongs to a job, and so needs no turn of its own. It goes on when the caller gives up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than [`CHANGE_TIMEOUT`].
    pub async fn steer<T: Send + 'static>(
        &self,
        _: &Job,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        self.to_end(what, work).await
    }

    /// The end of the domain, which waits for nothing. It goes on when the caller gives up.
    ///
    /// # Errors
    /// Those of `work`; [`LauncherError::Slow`] when it takes longer than [`CHANGE_TIMEOUT`].
    pub async fn kill(
        &self,
        work: impl FnOnce(Option<Domain>) -> Result<(), LauncherError> + Send + 'static,
    ) -> Result<(), LauncherError> {
        self.to_end("killing the domain", work).await
    }

    async fn to_end<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        let done = within(what, CHANGE_TIMEOUT, self.unlimited(what, work)).await;
        self.note_slow(done)
    }

    /// A call that takes as long as libvirt does: nobody waits for its answer, or its caller has a limit.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn unlimited<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<T, LauncherError> {
        blocking(what, self.lookup(work)).await
    }

    fn lookup<T>(
        &self,
        work: impl FnOnce(Option<Domain>) -> Result<T, LauncherError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, LauncherError> + Send + 'static {
        self.call(move |connection, name| work(connection.lookup(name)?))
    }

    fn call<T>(
        &self,
        work: impl FnOnce(&Connection, &str) -> Result<T, LauncherError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, LauncherError> + Send + 'static {
        let (connection, name) = (self.connection(), self.name.clone());
        move || work(&connection, &name)
    }
}

/// Runs `work` once there is a permit, and releases that when `work` returns, also when the caller has given up.
async fn limited<T: Send + 'static>(
    what: &'static str,
    limit: Duration,
    permits: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    let permits = permits.clone();
    within(what, limit, async move {
        // Never closed, so this waits, and does not fail.
        let permit = permits.acquire_owned().await;
        blocking(what, move || {
            let _permit = permit;
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

/// Waits for `work` no longer than `limit`. What it has spawned goes on.
pub(super) async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, LauncherError>>,
) -> Result<T, LauncherError> {
    timeout(limit, work)
        .await
        .unwrap_or(Err(LauncherError::Slow { what, after: limit }))
}

/// The domain as libvirt has it. Blocks.
pub(super) fn read_spec(domain: &Domain, kind: XmlKind) -> Result<DomainSpec, LauncherError> {
    DomainSpec::from_xml(&domain.xml(kind)?).map_err(LauncherError::Xml)
}
