//! Freezes the guest's file systems for a snapshot or backup, and thaws them.
//!
//! ```text
//!   freeze ─► status? ─thawed─► note the deadline ─► guest-fsfreeze-freeze ─► frozen
//!               └─frozen─► done                                                 │ deadline passed (thaw_timer)
//!   unfreeze ─► status? ─thawed─► done ─► forget the deadline                   ▼
//!               └─frozen, unknown─► guest-fsfreeze-thaw ◄───────────────────────┘
//! ```
//!
//! There is one deadline. A freeze that finds the guest frozen sets it anew only if it has passed:
//! the freeze before is over, or has failed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::error::AgentError;
use super::known::Knowledge;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::vm::Phase;
use api::vmi::Vmi;
use domain::guest_agent::{FreezeStatus, limits};
use libvirt::DomainHandle;
use pod::{PodError, ThawTimer};

/// Limit for the agent to freeze all file systems; virt-handler waits 60 s. A guest that writes a
/// lot takes some seconds.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(45);
/// Limit for the agent to thaw them; virt-handler waits 20 s.
const THAW_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for all that comes before the freeze, such as other calls to the agent: with
/// [`FREEZE_TIMEOUT`] it is less than [`FREEZE_ANSWER_TIMEOUT`]. A caller that has given up would
/// not thaw the guest.
const FREEZE_BEGINS_WITHIN: Duration = Duration::from_secs(12);
/// Limits of the answers, including the wait for other calls to the agent.
const FREEZE_ANSWER_TIMEOUT: Duration = Duration::from_secs(58);
const THAW_ANSWER_TIMEOUT: Duration = Duration::from_secs(18);

/// First and longest delay before a failed thaw is retried: the agent may be away or busy.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

pub struct Freezer {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) known: Arc<Knowledge>,
    pub(super) tpm_dir: PathBuf,
    pub(super) thaw_timer: ThawTimer,
}

impl Freezer {
    /// Forgets the freeze of an earlier guest before a new guest starts.
    ///
    /// # Errors
    /// The file of the deadline stays.
    pub(in crate::launcher) fn forget(&self) -> Result<(), PodError> {
        self.thaw_timer.set(None)
    }

    /// `FreezeVirtualMachine`: freezes the guest's file systems, by the agent's own command, not by
    /// `virDomainFSFreeze`. Schedules a thaw after `thaw_after` (`unfreezeTimeoutSeconds`); zero
    /// means none.
    ///
    /// # Errors
    /// A migration runs; or the agent does not answer or refuses. If it was asked to freeze, a thaw
    /// follows in the background.
    // D-agent-8 (docs/differences.md).
    pub async fn freeze(
        self: &Arc<Self>,
        vmi: &Arc<Vmi>,
        thaw_after: Duration,
    ) -> Result<(), LauncherError> {
        self.refuse_in_migration()?;
        let (this, vmi, asked) = (self.clone(), vmi.clone(), Instant::now());
        let what = "freezing the guest's file systems";
        self.libvirt
            .agent_call(what, FREEZE_ANSWER_TIMEOUT, move |domain| {
                this.freeze_now(domain, &vmi, thaw_after, asked)
            })
            .await
    }

    fn refuse_in_migration(&self) -> Result<(), AgentError> {
        let vm = &self.known.vm;
        let moves = matches!(
            vm.snapshot().phase,
            Phase::MigratingIn | Phase::MigratingOut
        );
        let stays = !moves && !vm.metadata().is_migrating();
        stays.then_some(()).ok_or(AgentError::Migrating)
    }

    /// Blocks.
    fn freeze_now(
        &self,
        domain: &DomainHandle,
        vmi: &Vmi,
        thaw_after: Duration,
        asked: Instant,
    ) -> Result<(), LauncherError> {
        let is_late = || asked.elapsed() > FREEZE_BEGINS_WITHIN;
        if is_late() {
            return Err(AgentError::Late(FREEZE_BEGINS_WITHIN).into());
        }
        let deadline = (!thaw_after.is_zero()).then_some(thaw_after);
        if self.known.poll_freeze_status(domain)? == FreezeStatus::Frozen {
            // A thaw that is due would end this caller's freeze.
            if self.is_thaw_due() {
                self.thaw_timer.set(deadline)?;
            }
            return Ok(());
        }
        // The TPM's state is not in the guest's file systems.
        if vmi.has_persistent_tpm() {
            pod::sync_tpm_state(&self.tpm_dir)?;
        }
        if is_late() {
            return Err(AgentError::Late(FREEZE_BEGINS_WITHIN).into());
        }
        // One may have begun meanwhile.
        self.refuse_in_migration()?;
        // The deadline is saved first. If the launcher is killed, the next one thaws the guest.
        self.thaw_timer.set(deadline)?;
        let frozen = domain.agent_command(
            r#"{"execute":"guest-fsfreeze-freeze"}"#,
            FREEZE_TIMEOUT,
            limits::MAX_ANSWER_BYTES,
        );
        if let Err(error) = frozen {
            // A slow agent may still freeze the guest, so a thaw is due at once.
            self.thaw_timer.set(Some(Duration::ZERO))?;
            return Err(error.into());
        }
        self.known.learn_freeze_status(FreezeStatus::Frozen);
        Ok(())
    }

    /// `UnfreezeVirtualMachine`: thaws the guest's file systems.
    ///
    /// # Errors
    /// The agent does not answer or refuses. A scheduled thaw still happens.
    pub async fn unfreeze(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.thaw_if(|_| true).await
    }

    /// Asks `is_wanted` once no other call to the agent runs.
    async fn thaw_if(self: &Arc<Self>, is_wanted: fn(&Self) -> bool) -> Result<(), LauncherError> {
        let this = self.clone();
        let what = "thawing the guest's file systems";
        self.libvirt
            .agent_call(what, THAW_ANSWER_TIMEOUT, move |domain| {
                match is_wanted(&this) {
                    true => this.unfreeze_now(domain),
                    false => Ok(()),
                }
            })
            .await
    }

    fn is_thaw_due(&self) -> bool {
        self.thaw_timer.remaining() == Some(Duration::ZERO)
    }

    /// Blocks.
    fn unfreeze_now(&self, domain: &DomainHandle) -> Result<(), LauncherError> {
        // A thaw runs the guest's own fsfreeze hooks, so an unnecessary one is avoided.
        if !matches!(
            self.known.poll_freeze_status(domain),
            Ok(FreezeStatus::Thawed)
        ) {
            domain.agent_command(
                r#"{"execute":"guest-fsfreeze-thaw"}"#,
                THAW_TIMEOUT,
                limits::MAX_ANSWER_BYTES,
            )?;
            self.known.learn_freeze_status(FreezeStatus::Thawed);
            tracing::info!("Thawed the guest's file systems");
        }
        Ok(self.thaw_timer.set(None)?)
    }

    /// Carries out scheduled thaws for the launcher's life.
    pub(super) async fn thaw_in_time(self: Arc<Self>) {
        let mut changes = self.thaw_timer.changes();
        let mut retry_delay = RETRY_DELAYS.0;
        loop {
            changes.mark_unchanged();
            let Some(remaining) = self.thaw_timer.remaining() else {
                // Cannot fail: the sender lives in the timer.
                drop(changes.changed().await);
                continue;
            };
            tokio::select! {
                _ = changes.changed() => continue,
                () = sleep(remaining) => {}
            }
            // After an earlier launcher's freeze, the domain has to be found first.
            let phase = self.known.vm.wait_until_shown().await.phase;
            // The reference's words, also after a failed freeze.
            tracing::warn!("Unfreeze was not called in time, initiating unfreeze");
            let has_ended = !phase.is_visible() && !phase.is_starting() || phase == Phase::Ended;
            match self.thaw_if(Self::is_thaw_due).await {
                Ok(()) => {}
                Err(LauncherError::NoDomain) => self.forget_thaw(),
                Err(_) if has_ended => self.forget_thaw(),
                Err(error) => {
                    tracing::warn!(reason = %os::logging::chain(&error), "The guest's file systems could not be thawed; trying again");
                    if timeout(retry_delay, changes.changed()).await.is_err() {
                        retry_delay = retry_delay.saturating_mul(2).min(RETRY_DELAYS.1);
                        continue;
                    }
                }
            }
            retry_delay = RETRY_DELAYS.0;
        }
    }

    /// Cancels the thaw, because no guest is left.
    fn forget_thaw(&self) {
        if let Err(error) = self.forget() {
            tracing::warn!(reason = %os::logging::chain(&error), "The deadline of the freeze could not be removed");
        }
    }
}
