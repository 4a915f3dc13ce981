//! Freezes the guest's file systems for a snapshot or backup, and thaws them.
//!
//! ```text
//!   freeze ─► status? ─thawed─► note the deadline ─► guest-fsfreeze-freeze ─► frozen
//!               └─frozen─► done                                                 │ deadline passed (thaw_timer)
//!   unfreeze ─► status? ─thawed─► done ─► forget the deadline                   ▼
//!               └─frozen, unknown─► guest-fsfreeze-thaw ◄───────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::{AgentError, poll};
use crate::launcher::vm::Phase;
use crate::launcher::{Launcher, LauncherError};
use api::vmi::Vmi;
use domain::guest_agent::{FreezeStatus, answer, limits};
use libvirt::Domain;

/// For the agent to freeze all file systems; virt-handler waits 60 s. A guest that writes a lot takes some seconds.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(45);
/// For the agent to thaw them; virt-handler waits 20 s.
const THAW_TIMEOUT: Duration = Duration::from_secs(10);
/// The answers come before that, with what they wait for other calls to the agent.
const FREEZE_ANSWER_TIMEOUT: Duration = Duration::from_secs(58);
const THAW_ANSWER_TIMEOUT: Duration = Duration::from_secs(18);

impl Launcher {
    /// Freezes the guest's file systems. They are thawed `thaw_after` later, if nobody does so before; zero is never.
    ///
    /// # Errors
    /// The agent does not answer or refuses. Whatever is frozen then is thawed.
    // D-agent-8 (docs/differences.md).
    pub async fn freeze(
        self: &Arc<Self>,
        vmi: &Arc<Vmi>,
        thaw_after: Duration,
    ) -> Result<(), LauncherError> {
        let phase = self.vm.snapshot().phase;
        let moves = matches!(phase, Phase::MigratingIn | Phase::MigratingOut);
        if moves || self.is_migrating() {
            return Err(AgentError::Migrating.into());
        }
        let (launcher, vmi) = (self.clone(), vmi.clone());
        let what = "freezing the guest's file systems";
        self.domain
            .agent_call(what, FREEZE_ANSWER_TIMEOUT, move |domain| {
                launcher.freeze_now(domain, &vmi, thaw_after)
            })
            .await
    }

    /// Blocks.
    fn freeze_now(
        &self,
        domain: &Domain,
        vmi: &Vmi,
        thaw_after: Duration,
    ) -> Result<(), LauncherError> {
        if self.freeze_status(domain)? == FreezeStatus::Frozen {
            return Ok(());
        }
        // The guest's file systems do not have the TPM's state.
        if vmi.has_persistent_tpm() {
            self.pod.sync_tpm_state()?;
        }
        let timer = &self.guest_agent.thaw_timer;
        // Before the freeze: a launcher that is killed in the middle of it leaves no guest that nobody thaws.
        timer.set((!thaw_after.is_zero()).then_some(thaw_after))?;
        let frozen = domain.agent_command(
            r#"{"execute":"guest-fsfreeze-freeze"}"#,
            FREEZE_TIMEOUT,
            limits::MAX_ANSWER_BYTES,
        );
        if let Err(error) = frozen {
            // It may be frozen, or be so later: an agent that was slow goes on.
            timer.set(Some(Duration::ZERO))?;
            return Err(error.into());
        }
        self.learn_freeze_status(FreezeStatus::Frozen);
        Ok(())
    }

    /// Thaws the guest's file systems.
    ///
    /// # Errors
    /// The agent does not answer or refuses. A thaw that a freeze has asked for is then still made.
    pub async fn unfreeze(self: &Arc<Self>) -> Result<(), LauncherError> {
        let launcher = self.clone();
        let what = "thawing the guest's file systems";
        self.domain
            .agent_call(what, THAW_ANSWER_TIMEOUT, move |domain| {
                launcher.unfreeze_now(domain)
            })
            .await
    }

    /// Blocks.
    fn unfreeze_now(&self, domain: &Domain) -> Result<(), LauncherError> {
        // A thaw runs the guest's hooks, so one that is not needed is not made.
        if !matches!(self.freeze_status(domain), Ok(FreezeStatus::Thawed)) {
            domain.agent_command(
                r#"{"execute":"guest-fsfreeze-thaw"}"#,
                THAW_TIMEOUT,
                limits::MAX_ANSWER_BYTES,
            )?;
            self.learn_freeze_status(FreezeStatus::Thawed);
        }
        Ok(self.guest_agent.thaw_timer.set(None)?)
    }

    /// What the agent says now. Blocks.
    fn freeze_status(&self, domain: &Domain) -> Result<FreezeStatus, LauncherError> {
        let status = poll::command(domain, "guest-fsfreeze-status")?;
        let status = answer::freeze_status(&status)?;
        self.learn_freeze_status(status);
        Ok(status)
    }

    pub(super) fn learn_freeze_status(&self, status: FreezeStatus) {
        let before = self.vm.guest().fs_freeze_status;
        if before != Some(status) {
            self.vm
                .report_guest(|guest| guest.fs_freeze_status = Some(status));
            self.guest_agent.freezes.send_modify(|count| *count += 1);
        }
    }
}
