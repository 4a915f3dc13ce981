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

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::config::LauncherConfig;
use super::libvirt_domain::LibvirtDomain;
use super::pod_backend::PodBackend;
use super::timeline::{StartStep, Timeline};
use super::warnings::Warnings;
use crate::notify::Notifier;
use api::pod_paths::THAW_DEADLINE;
use api::vmi::Vmi;
use credentials::Credentials;
use libvirt::{AgentState, Event};
use pod::ThawTimer;
use poller::Poller;
use reads::Reads;

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
        notifier: Notifier,
        pod: &Arc<dyn PodBackend>,
        config: &LauncherConfig,
        warnings: &Warnings,
        events: Receiver<Event>,
    ) -> Arc<Self> {
        let known = Arc::new(Knowledge {
            vm: libvirt.vm.clone(),
            notifier,
            known: Mutex::default(),
            freezes: watch::Sender::default(),
            reads: Reads::default(),
        });
        let connects = watch::Sender::new(0);
        let commands = AgentCommands {
            libvirt: libvirt.clone(),
        };
        let freezer = Arc::new(Freezer {
            libvirt: libvirt.clone(),
            known: known.clone(),
            tpm_dir: config.tpm_dir.clone(),
            thaw_timer: ThawTimer::load(config.flags.root.path(THAW_DEADLINE)),
        });
        let poller = Poller {
            libvirt: libvirt.clone(),
            known: known.clone(),
            flags: config.flags.clone(),
            connects: connects.subscribe(),
        };
        tokio::spawn(poller.run());
        tokio::spawn(first_answers::show_in_time(libvirt.vm.clone()));
        tokio::spawn(freezer.clone().thaw_in_time());
        let credentials = Arc::new(Credentials {
            libvirt: libvirt.clone(),
            pod: pod.clone(),
            commands: commands.clone(),
            warnings: warnings.clone(),
            connects: connects.subscribe(),
            is_followed: AtomicBool::default(),
        });
        let timeline = config.timeline.clone();
        tokio::spawn(follow_connections(events, connects, timeline));
        let probe = Probe {
            libvirt: libvirt.clone(),
            commands: commands.clone(),
            warnings: warnings.clone(),
            is_paused: AtomicBool::default(),
        };
        Arc::new(Self {
            known,
            probe,
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

/// Counts the agent's connections (`VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE`). Each may be a different
/// agent.
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
