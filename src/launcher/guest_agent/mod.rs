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

pub(super) mod clock;
mod credentials;
pub(super) mod error;
mod exec;
mod first_answers;
mod freeze;
mod known;
mod ping;
pub(super) mod poll;
mod poller;
mod reads;
mod schedule;
mod thaw_timer;

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::config::LauncherConfig;
use super::libvirt_domain::LibvirtDomain;
use super::pod_backend::PodBackend;
use super::timeline::{Step, Timeline};
use super::vm::Vm;
use super::warnings::Warnings;
use crate::notify::Notifier;
use api::pod_paths::THAW_DEADLINE;
use api::vmi::Vmi;
use credentials::Credentials;
use libvirt::{AgentState, Event};
use poller::Poller;
use thaw_timer::ThawTimer;

pub use error::AgentError;
pub use exec::{AgentCommands, GuestCommand, GuestOutput};
pub use freeze::Freezer;
pub use known::Knowledge;
pub use ping::Probe;

/// All that goes through the agent.
pub struct GuestAgent {
    /// What it has answered.
    pub known: Arc<Knowledge>,
    /// Commands in the guest.
    pub commands: AgentCommands,
    /// Freezes and thaws file systems.
    pub freezer: Arc<Freezer>,
    /// GuestPing.
    pub probe: Probe,
    credentials: Arc<Credentials>,
}

impl GuestAgent {
    /// Begins to ask the agent, for as long as the launcher lives. Call it on a runtime.
    pub(super) fn begin(
        libvirt: &Arc<LibvirtDomain>,
        vm: &Arc<Vm>,
        notifier: Notifier,
        pod: &Arc<dyn PodBackend>,
        config: &LauncherConfig,
        warnings: Warnings,
        events: Receiver<Event>,
    ) -> Arc<Self> {
        let known = Arc::new(Knowledge::new(vm.clone(), notifier));
        let connects = watch::Sender::new(0);
        let commands = AgentCommands::new(libvirt.clone());
        let freezer = Arc::new(Freezer::new(
            libvirt.clone(),
            known.clone(),
            pod.clone(),
            ThawTimer::load(config.pod.root.path(THAW_DEADLINE)),
        ));
        let poller = Poller {
            libvirt: libvirt.clone(),
            known: known.clone(),
            config: config.pod.clone(),
            connects: connects.subscribe(),
        };
        tokio::spawn(poller.run());
        tokio::spawn(first_answers::show_in_time(vm.clone()));
        tokio::spawn(freezer.clone().thaw_in_time());
        let credentials = Arc::new(Credentials::new(
            libvirt.clone(),
            vm.clone(),
            pod.clone(),
            commands.clone(),
            connects.subscribe(),
        ));
        tokio::spawn(follow_connections(
            events,
            connects,
            config.timeline.clone(),
        ));
        Arc::new(Self {
            known,
            probe: Probe::new(libvirt.clone(), vm.clone(), commands.clone(), warnings),
            commands,
            freezer,
            credentials,
        })
    }

    /// Takes from a VMI what its annotations say about probes, and follows its access credentials.
    pub(super) fn follow_vmi(&self, vmi: &Vmi) {
        self.probe.note_vmi(vmi);
        self.credentials.follow(vmi);
    }
}

/// Counts how often an agent has connected. One that has may be another one.
async fn follow_connections(
    mut events: Receiver<Event>,
    connects: watch::Sender<u64>,
    timeline: Arc<Timeline>,
) {
    loop {
        match events.recv().await {
            Ok(Event::AgentLifecycle {
                state: AgentState::Connected,
                ..
            }) => timeline.mark(Step::Agent),
            Ok(_) => continue,
            // An agent may have connected.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
        connects.send_modify(|count| *count += 1);
    }
}
