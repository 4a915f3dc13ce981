//! The guest agent: its reports on the guest, and commands through it.
//!
//! ```text
//!   agent connected, guest runs ──► poller ──► what is known ──► GetGuestInfo, GetUsers, GetFilesystems
//!                                     │             └─ a change ─► Vm ─► document for virt-handler
//!                                     ▼
//!   acts (exec, ping, freeze, …) ──► LibvirtDomain::agent_call: one call at a time, each with a limit
//! ```
//!
//! A guest is not trusted and its agent may be silent: each call to it has a limit, and calls about
//! the domain never wait for it. [`domain::guest_agent`] parses and limits the answers.

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
use super::timeline::{StartStep, Timeline};
use super::vm::Vm;
use super::warnings::Warnings;
use crate::notify::Notifier;
use api::pod_paths::THAW_DEADLINE;
use api::vmi::Vmi;
use credentials::Credentials;
use libvirt::{AgentState, Event};
use poller::Poller;
use thaw_timer::ThawTimer;

pub use exec::{AgentCommands, GuestCommand};
pub use freeze::Freezer;
pub use known::Knowledge;
pub use ping::Probe;

/// All reports and commands of the guest agent.
pub struct GuestAgent {
    /// The agent's last answers.
    pub known: Arc<Knowledge>,
    pub commands: AgentCommands,
    pub freezer: Arc<Freezer>,
    pub probe: Probe,
    credentials: Arc<Credentials>,
}

impl GuestAgent {
    /// Starts polling the agent, for the launcher's life. Call it on a runtime.
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
            ThawTimer::load(config.flags.root.path(THAW_DEADLINE)),
        ));
        let poller = Poller {
            libvirt: libvirt.clone(),
            known: known.clone(),
            flags: config.flags.clone(),
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
            warnings.clone(),
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

    /// Applies a VMI's probe annotations and follows its access credentials.
    pub(super) fn follow_vmi(&self, vmi: &Vmi) {
        self.probe.note_vmi(vmi);
        self.credentials.follow(vmi);
    }
}

/// Counts the agent's connections. Each may be a different agent.
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
            }) => timeline.mark(StartStep::Agent),
            Ok(_) => continue,
            // An agent may have connected.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
        connects.send_modify(|count| *count += 1);
    }
}
