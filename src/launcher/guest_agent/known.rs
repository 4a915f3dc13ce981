//! What the agent has answered last, for virt-handler's questions. What virt-handler gets in documents (operating system,
//! interfaces, freeze status) is not here, but in [`Vm`].

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::first_answers;
use super::reads::Reads;
use crate::launcher::lock::lock;
use crate::launcher::vm::{Agent, Vm};
use crate::notify::Notifier;
use domain::guest_agent::{
    AgentInfo, Filesystem, FreezeStatus, GuestAgentInfo, Load, Timezone, User,
};

/// What is known of the guest by its agent. It stays when the agent goes.
pub struct Knowledge {
    pub(super) vm: Arc<Vm>,
    notifier: Notifier,
    known: Mutex<Known>,
    /// How often the launcher has frozen or thawed file systems.
    pub(super) freezes: watch::Sender<u64>,
    pub(super) reads: Reads,
}

/// The last answers.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub agent: AgentInfo,
    pub hostname: String,
    pub timezone: Option<Timezone>,
    pub users: Vec<User>,
    pub filesystems: Vec<Filesystem>,
    pub load: Load,
}

impl Knowledge {
    pub(super) fn new(vm: Arc<Vm>, notifier: Notifier) -> Self {
        Self {
            vm,
            notifier,
            known: Mutex::default(),
            freezes: watch::Sender::default(),
            reads: Reads::default(),
        }
    }

    /// What is known of the guest, from memory. An agent that is new gets a moment for its first answers.
    pub async fn info(&self) -> GuestAgentInfo {
        self.reads.note();
        first_answers::wait(&self.vm).await;
        let guest = self.vm.guest();
        let known = lock(&self.known);
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
    pub fn agent_version(&self) -> String {
        lock(&self.known).agent.version.clone()
    }

    /// The guest's load average, from memory.
    pub fn load(&self) -> Load {
        lock(&self.known).load
    }

    pub(super) fn learn<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut lock(&self.known))
    }

    /// virt-handler asks for the agent's version and commands when it gets a document. They are in
    /// none, so it gets the same document again when they have changed.
    pub(in crate::launcher) fn learn_agent(&self, agent: AgentInfo) {
        let known = |known: &mut Known| std::mem::replace(&mut known.agent, agent.clone());
        if self.learn(known) == agent {
            return;
        }
        self.notifier.send_again();
        // The first document that shows a new agent follows anyway.
        if self.vm.snapshot().agent != Agent::New {
            self.vm.refresh();
        }
    }

    pub(super) fn learn_freeze_status(&self, status: FreezeStatus) {
        let before = self.vm.guest().fs_freeze_status;
        if before != Some(status) {
            self.vm
                .report_guest(|guest| guest.fs_freeze_status = Some(status));
            self.freezes.send_modify(|count| *count += 1);
        }
    }
}
