//! Queries the agent and records its answers. All functions block.

use std::time::Duration;

use super::known::{Knowledge, Known};
use crate::launcher::error::LauncherError;
use crate::launcher::reads::typed_values;
use domain::guest_agent::params::GuestInfoParams;
use domain::guest_agent::{FreezeStatus, answer, limits};
use domain::object::DomainStatus;
use libvirt::DomainHandle;
use libvirt::GuestInfoKind as Kind;

/// How long libvirt waits for the answer to one command; the same as in KubeVirt.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

impl Knowledge {
    /// Asks for the agent's version and commands.
    pub(super) fn poll_agent(&self, domain: &DomainHandle) -> Result<(), LauncherError> {
        let agent = answer::agent_info(&command(domain, "guest-info")?)?;
        self.learn_agent(agent);
        Ok(())
    }

    /// Asks for the mounted file systems.
    pub(super) fn poll_filesystems(&self, domain: &DomainHandle) -> Result<(), LauncherError> {
        let all = answer::filesystems(&command(domain, "guest-get-fsinfo")?)?;
        self.learn(|known| known.filesystems = all);
        Ok(())
    }

    /// Asks whether file systems are frozen.
    pub(super) fn poll_freeze_status(
        &self,
        domain: &DomainHandle,
    ) -> Result<FreezeStatus, LauncherError> {
        let status = answer::freeze_status(&command(domain, "guest-fsfreeze-status")?)?;
        self.learn_freeze_status(status);
        Ok(status)
    }

    /// Queries several kinds in one call (`virDomainGetGuestInfo`). The call fails if libvirt does
    /// not know one of them, or the agent refuses it; each is then queried alone. Returns those that
    /// libvirt or this agent will never know.
    // D-agent-2 (docs/differences.md).
    pub(super) fn poll_guest_info(
        &self,
        domain: &DomainHandle,
        kinds: &[Kind],
    ) -> Result<Vec<Kind>, LauncherError> {
        match guest_info(domain, kinds) {
            Ok(params) => self.learn_params(kinds, &params),
            Err(error) if !error.is_agent_refusal() => return Err(error.into()),
            Err(_) if kinds.len() > 1 => {
                let mut missing = Vec::new();
                for kind in kinds {
                    missing.extend(self.poll_guest_info(domain, &[*kind])?);
                }
                return Ok(missing);
            }
            Err(error) => {
                tracing::debug!(?kinds, reason = %error, "The guest agent refuses the query");
                if error.is_missing_agent_command() {
                    return Ok(kinds.to_vec());
                }
            }
        }
        Ok(Vec::new())
    }

    fn learn_params(&self, kinds: &[Kind], params: &GuestInfoParams) {
        let learn = |known: &mut Known| {
            for kind in kinds {
                match kind {
                    Kind::Hostname => known.hostname = params.hostname(),
                    Kind::Timezone => known.timezone = params.timezone(),
                    Kind::Users => known.users = params.users(),
                    Kind::Load => known.load = params.load(),
                    Kind::Interfaces | Kind::Os => {}
                }
            }
        };
        let report = |guest: &mut DomainStatus| {
            if kinds.contains(&Kind::Interfaces) {
                guest.interfaces = params.interfaces();
            }
            if kinds.contains(&Kind::Os) {
                guest.os_info = params.os();
            }
        };
        self.learn(learn);
        self.vm.report_guest(report);
    }
}

/// Sends a command without arguments and returns the answer.
pub(in crate::launcher) fn command(
    domain: &DomainHandle,
    name: &str,
) -> Result<String, libvirt::Error> {
    let command = format!(r#"{{"execute":"{name}"}}"#);
    domain.agent_command(&command, COMMAND_TIMEOUT, limits::MAX_ANSWER_BYTES)
}

fn guest_info(domain: &DomainHandle, kinds: &[Kind]) -> Result<GuestInfoParams, libvirt::Error> {
    Ok(typed_values(domain.guest_info(kinds)?).collect())
}
