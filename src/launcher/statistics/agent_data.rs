//! The guest agent's answers to a scrape: its own JSON, forwarded unchanged and cached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::agent_command::AgentCommand;
use super::recent;
use crate::launcher::error::LauncherError;
use crate::launcher::guest_agent::poll;
use crate::launcher::libvirt_domain::{LibvirtDomain, READ_TIMEOUT};

pub struct AgentData {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    /// The last answer to each command; `None` if the agent lacks the command.
    pub(in crate::launcher) known: Mutex<HashMap<AgentCommand, (Instant, Option<String>)>>,
}

/// How long an answer is reused: KubeVirt's figures.
fn max_age(command: AgentCommand) -> Duration {
    use AgentCommand as Command;
    Duration::from_secs(match command {
        Command::Load | Command::CpuStats | Command::DiskStats => 20,
        Command::Time | Command::Vcpus | Command::MemoryBlockInfo | Command::Users => 60,
        Command::OsInfo
        | Command::Disks
        | Command::HostName
        | Command::Timezone
        | Command::Route
        | Command::Interfaces => 5 * 60,
        Command::MemoryBlocks | Command::Devices => 30 * 60,
    })
}

impl AgentData {
    /// The agent's answer to a command, as JSON.
    ///
    /// # Errors
    /// There is no agent, it does not know the command, or it does not answer in time.
    pub async fn answer(&self, command: AgentCommand) -> Result<String, LauncherError> {
        match self.known(command).await {
            Some(Some(answer)) => Ok(answer),
            _ => self.ask(command).await,
        }
    }

    /// Like [`Self::answer`], but empty if the agent lacks the command, which it is then not asked
    /// again for as long as an answer would be reused (VEP 385; KubeVirt v1.10).
    ///
    /// # Errors
    /// There is no agent, or it does not answer in time.
    pub async fn answer_if_known(&self, command: AgentCommand) -> Result<String, LauncherError> {
        if let Some(answer) = self.known(command).await {
            return Ok(answer.unwrap_or_default());
        }
        match self.ask(command).await {
            Err(LauncherError::Libvirt(error)) if error.is_unknown_agent_command() => {
                let mut known = self.known.lock().await;
                known.insert(command, (Instant::now(), None));
                Ok(String::new())
            }
            answered => answered,
        }
    }

    async fn known(&self, command: AgentCommand) -> Option<Option<String>> {
        recent(self.known.lock().await.get(&command), max_age(command))
    }

    async fn ask(&self, command: AgentCommand) -> Result<String, LauncherError> {
        let what = "asking the guest agent for a metric";
        let ask = move |domain: &libvirt::DomainHandle| Ok(poll::command(domain, command.name())?);
        let answer = self.libvirt.agent_call(what, READ_TIMEOUT, ask).await?;
        let mut known = self.known.lock().await;
        known.insert(command, (Instant::now(), Some(answer.clone())));
        Ok(answer)
    }
}
