//! The guest agent: what it knows of the guest, and what the guest does through it.
//!
//! ```text
//!   agent connected, guest runs ──► poller ──► what is known ──► GetGuestInfo, GetUsers, GetFilesystems
//!                                     │             └─ a change ─► Vm ─► document for virt-handler
//!                                     ▼
//!   acts (exec, ping, freeze, …) ──► LibvirtDomain::agent_call: one call at a time, each with a limit
//! ```
//!
//! A guest is not trusted, and its agent may be silent: no call waits for it without a limit, and none of the domain's own
//! calls waits for it at all. What it answers is read by [`domain::guest_agent`], which bounds it.

mod credentials;
mod error;
mod exec;
mod freeze;
mod ping;
mod poll;
mod poller;
mod reads;
mod schedule;
mod thaw_timer;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::vm::Agent;
use super::{Launcher, lock};
use api::vmi::Vmi;
use domain::guest_agent::{AgentInfo, Filesystem, GuestAgentInfo, Load, Timezone, User};
use libvirt::{AgentState, Event};

pub use error::AgentError;
pub use exec::{GuestCommand, GuestOutput};
pub(super) use poll::command as raw_answer;
pub(super) use poller::{run, show_in_time};
use reads::Reads;
use thaw_timer::ThawTimer;
pub(super) use thaw_timer::run as thaw_in_time;

/// libvirt waits no longer for an answer of the agent. Of the calls that it bounds, none asks the agent for work that
/// takes time; a freeze has a limit of its own.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the launcher keeps about the agent. What virt-handler gets in documents (operating system, interfaces, freeze
/// status) is not here, but in [`Vm`](super::vm::Vm).
pub(super) struct GuestAgent {
    known: Mutex<Known>,
    /// How often an agent has connected. One that has may be another one.
    connects: watch::Sender<u64>,
    /// How often the launcher has frozen or thawed file systems.
    freezes: watch::Sender<u64>,
    reads: Reads,
    thaw_timer: ThawTimer,
    /// By an annotation of the VMI.
    probes_paused: AtomicBool,
    follows_credentials: AtomicBool,
}

/// What the agent has answered last. It stays when the agent goes.
#[derive(Debug, Default)]
struct Known {
    agent: AgentInfo,
    hostname: String,
    timezone: Option<Timezone>,
    users: Vec<User>,
    filesystems: Vec<Filesystem>,
    load: Load,
}

impl GuestAgent {
    /// `thaw_deadline` is the file in which the end of a freeze is kept.
    pub fn new(thaw_deadline: PathBuf) -> Self {
        Self {
            known: Mutex::default(),
            connects: watch::Sender::default(),
            freezes: watch::Sender::default(),
            reads: Reads::default(),
            thaw_timer: ThawTimer::load(thaw_deadline),
            probes_paused: AtomicBool::new(false),
            follows_credentials: AtomicBool::new(false),
        }
    }

    /// Takes from a VMI what its annotations say about probes.
    pub fn note_vmi(&self, vmi: &Vmi) {
        let paused = ping::are_probes_paused(vmi);
        if self.probes_paused.swap(paused, Ordering::Relaxed) != paused {
            tracing::info!(paused, "Guest agent probe pause state changed");
        }
    }

    /// A new guest: what an earlier one has left is of no use.
    pub fn forget_freeze(&self) -> Result<(), AgentError> {
        self.thaw_timer.set(None)
    }

    fn are_probes_paused(&self) -> bool {
        self.probes_paused.load(Ordering::Relaxed)
    }

    /// Takes from an event that an agent has connected.
    pub fn note_event(&self, event: &Event) {
        if let Event::AgentLifecycle {
            state: AgentState::Connected,
            ..
        } = event
        {
            self.connects.send_modify(|count| *count += 1);
        }
    }

    fn learn<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut lock(&self.known))
    }
}

impl Launcher {
    /// What is known of the guest, from memory. An agent that is new gets a moment for its first answers.
    pub async fn guest_info(&self) -> GuestAgentInfo {
        self.guest_agent.reads.note();
        poller::first_answers(&self.vm).await;
        let guest = self.vm.guest();
        let known = lock(&self.guest_agent.known);
        GuestAgentInfo {
            agent: known.agent.clone(),
            hostname: known.hostname.clone(),
            os: guest.os_info,
            timezone: known.timezone.clone(),
            users: known.users.clone(),
            filesystems: known.filesystems.clone(),
            freeze_status: guest.fs_freeze_status,
        }
    }

    /// The agent's version, from memory.
    pub fn guest_agent_version(&self) -> String {
        lock(&self.guest_agent.known).agent.version.clone()
    }

    /// The guest's load average, from memory.
    pub fn guest_load(&self) -> Load {
        lock(&self.guest_agent.known).load
    }

    /// Whether the guest agent was connected when the domain was seen last.
    pub(super) fn has_agent(&self) -> bool {
        self.vm.snapshot().agent != Agent::Away
    }
}
