//! `GuestPing`: probes whether the agent answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::exec::AgentCommands;
use super::poll;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::warnings::Warnings;
use api::vmi::Vmi;
use libvirt::{Connection, DomainState, PausedReason, code};

/// Annotation: if true (a word of Go's `strconv.ParseBool`), the VMI's `guestAgentPing` probes
/// succeed without asking the agent.
const PAUSE_PROBES: &str = "kubevirt.io/pause-guest-agent-probes";
/// Time added to the probe's limit. virt-handler waits 5 s longer than that limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Reads [`PAUSE_PROBES`].
fn are_probes_paused(vmi: &Vmi) -> bool {
    let word = vmi.metadata.annotations.get(PAUSE_PROBES);
    word.is_some_and(|word| matches!(word.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

pub struct Probe {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) commands: AgentCommands,
    pub(super) warnings: Warnings,
    /// Set by [`PAUSE_PROBES`].
    pub(super) is_paused: AtomicBool,
}

impl Probe {
    /// Applies a VMI's probe annotations.
    pub(super) fn note_vmi(&self, vmi: &Vmi) {
        let paused = are_probes_paused(vmi);
        if self.is_paused.swap(paused, Ordering::Relaxed) != paused {
            tracing::info!(paused, "Guest agent probe pause state changed");
        }
    }

    /// Checks that the agent answers. Excuses a guest that cannot answer for a good reason (paused
    /// by its user, migrating).
    ///
    /// # Errors
    /// The agent does not answer within libvirt's 5 s, or earlier calls to it leave no time within
    /// `timeout` and 4 s. Also sends a Kubernetes event.
    pub async fn ping(&self, domain: &str, timeout: Duration) -> Result<(), LauncherError> {
        self.commands.check_domain(domain)?;
        if self.is_paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let limit = timeout
            .max(Duration::from_secs(1))
            .saturating_add(ANSWER_TIMEOUT);
        let ping = |domain: &libvirt::DomainHandle| Ok(poll::command(domain, "guest-ping")?);
        let asked = self
            .libvirt
            .agent_call("pinging the guest agent", limit, ping);
        let Err(error) = asked.await else {
            return Ok(());
        };
        if is_unavailable(&error)
            && (self.libvirt.vm.metadata().is_migrating() || self.is_excused().await)
        {
            tracing::debug!(reason = %os::logging::chain(&error), "The guest agent need not answer now");
            return Ok(());
        }
        tracing::warn!(reason = %os::logging::chain(&error), "GuestAgentPing probe failed");
        let name = &self.warnings.name;
        self.warnings.send(
            "GuestAgentPingFailed",
            format!("GuestAgentPing probe failed for VMI {name}"),
        );
        Err(error)
    }

    /// Whether the guest is paused on purpose or has no domain (not arrived yet, or ended).
    async fn is_excused(&self) -> bool {
        self.libvirt
            .read("reading the domain's state", excuse)
            .await
            .unwrap_or(false)
    }
}

fn excuse(connection: &Connection, name: &str) -> Result<bool, LauncherError> {
    let Some(domain) = connection.lookup(name)? else {
        return Ok(true);
    };
    Ok(match domain.state() {
        Ok(state) => is_paused_by_intention(state),
        // The domain has just ended.
        Err(_) => true,
    })
}

fn is_paused_by_intention(state: DomainState) -> bool {
    let DomainState::Paused(reason) = state else {
        return false;
    };
    match reason {
        PausedReason::User
        | PausedReason::Migration
        | PausedReason::Save
        | PausedReason::Dump
        | PausedReason::FromSnapshot
        | PausedReason::ShuttingDown
        | PausedReason::Snapshot
        | PausedReason::StartingUp
        | PausedReason::Postcopy => true,
        PausedReason::Unknown
        | PausedReason::IoError
        | PausedReason::Watchdog
        | PausedReason::Crashed
        | PausedReason::PostcopyFailed
        | PausedReason::ApiError
        | PausedReason::Other(_) => false,
    }
}

/// Whether the agent is unreachable, for any reason.
fn is_unavailable(error: &LauncherError) -> bool {
    match error {
        // OPERATION_INVALID: the guest is paused. D-agent-9 (docs/differences.md).
        LauncherError::Libvirt(error) => matches!(
            error.code,
            code::AGENT_UNRESPONSIVE | code::NO_DOMAIN | code::OPERATION_INVALID
        ),
        // Another call to the agent is in progress.
        LauncherError::NoDomain | LauncherError::Slow { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_is_a_word_of_go() {
        for (word, expected) in [
            ("true", true),
            ("1", true),
            ("T", true),
            ("false", false),
            ("yes", false),
        ] {
            let mut vmi = Vmi::default();
            let annotations = &mut vmi.metadata.annotations;
            annotations.insert(PAUSE_PROBES.into(), word.into());
            assert_eq!(are_probes_paused(&vmi), expected, "{word}");
        }
        assert!(!are_probes_paused(&Vmi::default()));
    }
}
