//! What the guest agent answers to a scrape: its own JSON, passed on as it is, and kept for as long as it is worth.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{AgentCommand, recent};
use crate::launcher::guest_agent::raw_answer;
use crate::launcher::libvirt_domain::READ_TIMEOUT;
use crate::launcher::{Launcher, LauncherError};

/// The last answer to each command.
#[derive(Default)]
pub(in crate::launcher) struct AgentData(Mutex<HashMap<AgentCommand, (Instant, String)>>);

/// How long an answer is given out again: KubeVirt's figures.
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
        Command::MemoryBlocks => 30 * 60,
    })
}

impl Launcher {
    /// The agent's answer to a command, as JSON.
    ///
    /// # Errors
    /// There is no agent, it does not know the command, or does not answer in time.
    pub async fn agent_data(&self, command: AgentCommand) -> Result<String, LauncherError> {
        let known = self.statistics.agent_data.0.lock().await;
        if let Some(answer) = recent(known.get(&command), max_age(command)) {
            return Ok(answer);
        }
        drop(known);
        let what = "asking the guest agent for a metric";
        let ask = move |domain: &libvirt::Domain| Ok(raw_answer(domain, command.name())?);
        let answer = self.domain.agent_call(what, READ_TIMEOUT, ask).await?;
        let mut known = self.statistics.agent_data.0.lock().await;
        known.insert(command, (Instant::now(), answer.clone()));
        Ok(answer)
    }
}
