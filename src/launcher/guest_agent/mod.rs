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

mod poll;
mod poller;
mod reads;
mod schedule;

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

use super::{Launcher, lock};
use domain::DomainSpec;
use domain::guest_agent::{AgentInfo, Filesystem, GuestAgentInfo, Load, Timezone, User};
use libvirt::{AgentState, Event};

pub(super) use poll::command as raw_answer;
pub(super) use poller::run;
use reads::Reads;

/// The guest agent's channel.
const CHANNEL: &str = "org.qemu.guest_agent.0";
/// libvirt waits no longer for an answer of the agent. Of the calls that it bounds, none asks the agent for work that
/// takes time; a freeze has a limit of its own.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the launcher keeps about the agent. What virt-handler gets in documents (operating system, interfaces, freeze
/// status) is not here, but in [`Vm`](super::vm::Vm).
#[derive(Default)]
pub(super) struct GuestAgent {
    known: Mutex<Known>,
    /// How often an agent has connected. One that has may be another one.
    connects: watch::Sender<u64>,
    /// How often the launcher has frozen or thawed file systems.
    freezes: watch::Sender<u64>,
    reads: Reads,
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

    fn learn(&self, change: impl FnOnce(&mut Known)) {
        change(&mut lock(&self.known));
    }
}

impl Launcher {
    /// What is known of the guest, from memory.
    pub fn guest_info(&self) -> GuestAgentInfo {
        self.guest_agent.reads.note();
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
        let document = self.vm.snapshot().document;
        document.is_some_and(|document| is_connected(&document.spec))
    }
}

/// Whether a guest agent is connected to the domain.
pub(super) fn is_connected(domain: &DomainSpec) -> bool {
    domain.devices.channels.iter().any(|channel| {
        let target = channel.target.as_ref();
        target.is_some_and(|target| target.name == CHANNEL && target.state == "connected")
    })
}
