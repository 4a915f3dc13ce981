//! Polls the agent while there is one and the guest runs.
//!
//! ```text
//!            agent connected and guest runs
//!   idle ─────────────────────────────────────► polling ──► asks what is due ──► sleeps until something is due ─┐
//!    ▲                                            │  ▲                                                         │
//!    └─── agent gone, or guest paused or ended ───┘  └─────────────────────────────────────────────────────────┘
//! ```
//!
//! The published state tells whether there is an agent, so adopting a running guest or reconnecting
//! to libvirt needs no special case. The answers stay when the agent disconnects.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::first_answers::can_be_asked;
use super::known::Knowledge;
use super::schedule::{Poll, Schedule};
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use domain::guest_agent::FreezeStatus;
use libvirt::{DomainHandle, GuestInfoKind};

/// How long libvirt waits for an answer from the agent. No call with this limit asks the agent for
/// long work; a freeze has its own limit.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of one query, which may take several libvirt calls.
const POLL_TIMEOUT: Duration = Duration::from_secs(60);
/// The kinds of [`Poll::System`].
const SYSTEM: [GuestInfoKind; 4] = [
    GuestInfoKind::Os,
    GuestInfoKind::Hostname,
    GuestInfoKind::Timezone,
    GuestInfoKind::Load,
];

/// Polls whatever is due.
pub(super) struct Poller {
    pub libvirt: Arc<LibvirtDomain>,
    pub known: Arc<Knowledge>,
    pub flags: pod::LauncherFlags,
    /// Number of times an agent has connected.
    pub connects: watch::Receiver<u64>,
}

impl Poller {
    /// Polls for the launcher's life.
    pub async fn run(mut self) {
        let mut state = self.known.vm.subscribe();
        loop {
            // Cannot fail: the sender lives in the VM.
            drop(state.wait_for(can_be_asked).await);
            tracing::info!("Starting to poll the guest agent");
            let mut gone = state.clone();
            tokio::select! {
                () = self.poll() => {}
                _ = gone.wait_for(|vm| !can_be_asked(vm)) => {}
            }
            tracing::info!("Stopped polling the guest agent");
        }
    }

    /// Polls; starts over with each agent that connects.
    async fn poll(&mut self) {
        let mut freezes = self.known.freezes.subscribe();
        loop {
            self.connects.mark_unchanged();
            set_response_timeout(&self.libvirt).await;
            let mut session = Session {
                libvirt: &self.libvirt,
                known: &self.known,
                schedule: Schedule::begin(&self.flags, Instant::now()),
                answered: Vec::new(),
                missing: Vec::new(),
            };
            loop {
                tokio::select! {
                    () = sleep_until(session.schedule.next()) => session.ask().await,
                    // Cannot fail: the senders live as long as the launcher.
                    _ = freezes.changed() => session.schedule.freeze_status_changed(Instant::now()),
                    () = self.known.reads.begun() => session.schedule.users_are_read(Instant::now()),
                    _ = self.connects.changed() => break,
                }
            }
        }
    }
}

/// The polling of one agent.
struct Session<'a> {
    libvirt: &'a Arc<LibvirtDomain>,
    known: &'a Arc<Knowledge>,
    schedule: Schedule,
    /// What it has answered in this round.
    answered: Vec<Poll>,
    /// What this agent or libvirt will never know.
    missing: Vec<GuestInfoKind>,
}

impl Session<'_> {
    /// Queries what is due, until the agent is silent.
    async fn ask(&mut self) {
        let freeze_status = self.known.vm.guest().fs_freeze_status;
        let read = self.known.reads.are_recent();
        let due = self.schedule.take_due(Instant::now(), freeze_status, read);
        self.answered.clear();
        let mut asked = self.ask_first(&due).await;
        self.known.vm.agent_is_known();
        // These queries may take long with network file systems.
        if asked.is_ok() && !self.is_frozen() {
            let filesystems = Knowledge::poll_filesystems;
            asked = self.ask_if(&due, Poll::Filesystems, filesystems).await;
        }
        if let Err(error) = asked {
            tracing::info!(reason = %os::logging::chain(&error), "The guest agent does not answer");
            self.schedule.silent(Instant::now(), &due);
        } else {
            self.schedule.answered(&self.answered);
        }
    }

    /// Queries what virt-handler waits for: first whether file systems are frozen, as an agent then
    /// disables commands, and its version, which it tells even so. Fails only if the agent is
    /// silent; a refusal is no failure.
    async fn ask_first(&mut self, due: &[Poll]) -> Result<(), LauncherError> {
        let freeze_status = Knowledge::poll_freeze_status;
        self.ask_if(due, Poll::FreezeStatus, freeze_status).await?;
        self.ask_if(due, Poll::Agent, Knowledge::poll_agent).await?;
        // While file systems are frozen, the agent refuses all other commands.
        if self.is_frozen() {
            return Ok(());
        }
        let mut kinds = Vec::new();
        if due.contains(&Poll::Interfaces) {
            kinds.push(GuestInfoKind::Interfaces);
        }
        if due.contains(&Poll::System) {
            kinds.extend(SYSTEM);
        }
        if due.contains(&Poll::Users) {
            kinds.push(GuestInfoKind::Users);
        }
        kinds.retain(|kind| !self.missing.contains(kind));
        if !kinds.is_empty() {
            let asked = self.call(move |known, domain| known.poll_guest_info(domain, &kinds));
            if let Some(missing) = asked.await? {
                self.missing.extend(missing);
                let both = [Poll::System, Poll::Users].into_iter();
                self.answered.extend(both.filter(|poll| due.contains(poll)));
            }
        }
        Ok(())
    }

    /// Makes a query if it is due. Fails like [`Self::ask_first`].
    async fn ask_if<T: Send + 'static>(
        &mut self,
        due: &[Poll],
        poll: Poll,
        ask: fn(&Knowledge, &DomainHandle) -> Result<T, LauncherError>,
    ) -> Result<(), LauncherError> {
        if due.contains(&poll) {
            let asked = self.call(ask).await?;
            self.answered.extend(asked.map(|_| poll));
        }
        Ok(())
    }

    fn is_frozen(&self) -> bool {
        self.known.vm.guest().fs_freeze_status == Some(FreezeStatus::Frozen)
    }

    /// Returns `None` if the agent refuses or its answer is unusable.
    async fn call<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Knowledge, &DomainHandle) -> Result<T, LauncherError> + Send + 'static,
    ) -> Result<Option<T>, LauncherError> {
        let known = self.known.clone();
        let asked =
            self.libvirt
                .agent_call("asking the guest agent", POLL_TIMEOUT, move |domain| {
                    ask(&known, domain)
                });
        match asked.await {
            Ok(learned) => Ok(Some(learned)),
            Err(error) if is_silence(&error) => Err(error),
            Err(error) => {
                tracing::debug!(reason = %os::logging::chain(&error), "The guest agent refused a query, or its answer is unusable");
                Ok(None)
            }
        }
    }
}

fn is_silence(error: &LauncherError) -> bool {
    match error {
        LauncherError::Libvirt(error) => error.is_agent_silent() || error.is_busy(),
        LauncherError::Slow { .. } => true,
        _ => false,
    }
}

/// libvirt keeps the timeout (`virDomainAgentSetResponseTimeout`) with the domain, across restarts
/// of agent and daemon.
pub(super) async fn set_response_timeout(libvirt: &Arc<LibvirtDomain>) {
    let set = libvirt.agent_call("setting the agent's timeout", POLL_TIMEOUT, |domain| {
        Ok(domain.set_agent_timeout(RESPONSE_TIMEOUT)?)
    });
    if let Err(error) = set.await {
        tracing::warn!(reason = %os::logging::chain(&error), "libvirt may wait for the guest agent without a limit");
    }
}
