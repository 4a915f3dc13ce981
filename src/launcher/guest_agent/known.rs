//! The agent's last answers, for virt-handler's queries. Answers that virt-handler gets in
//! documents (operating system, interfaces, freeze status) are in [`Vm`] instead.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::first_answers;
use super::reads::Reads;
use crate::launcher::vm::{Agent, Vm};
use crate::notify::Notifier;
use domain::guest_agent::{
    AgentInfo, Filesystem, FreezeStatus, GuestAgentInfo, Load, Timezone, User,
};
use os::lock::lock;

/// The agent's answers, kept when the agent disconnects.
pub struct Knowledge {
    pub(super) vm: Arc<Vm>,
    pub(super) notifier: Notifier,
    pub(super) known: Mutex<Known>,
    /// Number of changes of the freeze status that were learned, by a poll too.
    pub(super) freezes: watch::Sender<u64>,
    pub(super) reads: Reads,
}

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
    /// The guest's information, from memory (`GetGuestInfo`, `GetUsers`, `GetFilesystems`). A new
    /// agent gets a moment for its first answers.
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

    /// Records the agent's version and commands (`guest-info`, `supportedCommands`). virt-handler
    /// asks for them when it gets a document, but no document contains them. So a change sends the
    /// last document again.
    ///
    /// The agent of a frozen guest disables most commands, and virt-handler reports an agent
    /// without them as not supported. So the commands known before the freeze stay. A launcher that
    /// comes to a frozen guest knows none, and takes all for enabled until it asks a thawed one.
    // D-sup-16 (docs/differences.md).
    pub(in crate::launcher) fn learn_agent(&self, mut agent: AgentInfo) {
        if self.vm.guest().fs_freeze_status == Some(FreezeStatus::Frozen) {
            if lock(&self.known).agent.version == agent.version {
                return;
            }
            let commands = agent.commands.iter_mut();
            commands.for_each(|command| command.enabled = true);
        }
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
