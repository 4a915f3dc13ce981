//! virt-handler's lifecycle calls: pause, unpause, reset, reboot, shutdown, delete. Each may be
//! repeated; a second reset or reboot happens again. The kill is in [`kill`].

pub(super) mod kill;

use std::sync::Arc;
use std::time::Duration;

use super::admit;
use super::error::LauncherError;
use super::guest_agent::clock::GuestClock;
use super::guest_agent::poll;
use super::libvirt_domain::{AgentShutdown, CHANGE_TIMEOUT, LibvirtDomain};
use super::removals::Removals;
use super::vm::metadata::Metadata;
use super::vm::{Job, Phase, Refusal, Request, Snapshot};
use api::Action;
use api::vmi::Vmi;
use domain::{Domain, DomainSpec};
use kill::{KILL_PATIENCE, Killer};
use libvirt::{
    ChangeableDomain, DomainState, PausedReason, Reboot, Shutdown, Undefine, XmlKind, code,
};

/// `VIR_FROM_QEMU`: the domain of libvirt's error for an unknown VM.
const FROM_QEMU: i32 = 10;
/// If the agent takes longer to shut the guest down, virt-handler's next request also sends ACPI.
const AGENT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// Carries out virt-handler's lifecycle requests.
pub struct Requests {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) clock: Arc<GuestClock>,
    pub(super) killer: Arc<Killer>,
    pub(super) removals: Arc<Removals>,
}

impl Requests {
    /// Carries out the request, if it is admitted now.
    ///
    /// # Errors
    /// The request is refused, or libvirt's error.
    pub async fn act(&self, action: Action, vmi: &Vmi) -> Result<(), LauncherError> {
        let done = match action {
            Action::Pause => self.pause().await,
            Action::Unpause => self.unpause().await,
            Action::Reset => self.reset().await,
            Action::SoftReboot => self.soft_reboot(vmi).await,
            Action::Shutdown => self.shutdown(Request::Shutdown).await,
            Action::Kill => self.killer.kill(KILL_PATIENCE).await,
            Action::Delete => self.remove().await,
        };
        done.map_err(|error| match (error, action) {
            (LauncherError::Refused(Refusal::NoDomain), Action::Reset | Action::SoftReboot) => {
                self.not_found()
            }
            (LauncherError::Refused(Refusal::NoDomain), _) => LauncherError::NoDomain,
            (error, _) => error,
        })
    }

    /// `PauseVirtualMachine` (`virDomainSuspend`): stops the vCPUs, until [`Self::unpause`]:
    /// no sync resumes them. A guest that a job of libvirt has paused stays paused when that ends
    /// ([`pause_as_requested`]). One that a disk's error has paused is resumed by the next sync.
    async fn pause(&self) -> Result<(), LauncherError> {
        let vm = self.libvirt.vm.clone();
        let pause = move |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            match domain.state()? {
                DomainState::Running(_) => domain.suspend()?,
                DomainState::Paused(PausedReason::Dump | PausedReason::Migration) => {}
                _ => return Ok(()),
            }
            // Here: the caller may have given up by now.
            vm.set_pause_requested(true);
            Ok(())
        };
        admit::change(&self.libvirt, Request::Pause, "pausing the domain", pause).await
    }

    /// `UnpauseVirtualMachine` (`virDomainResume`): lets the vCPUs run again.
    async fn unpause(&self) -> Result<(), LauncherError> {
        let vm = self.libvirt.vm.clone();
        let resume = move |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            let paused = domain.state()?.is_paused();
            if paused {
                domain.resume()?;
            }
            // Here: the caller may have given up by now. Also if libvirt has resumed it after a job.
            vm.set_pause_requested(false);
            Ok(paused)
        };
        let what = "resuming the domain";
        if admit::change(&self.libvirt, Request::Unpause, what, resume).await? {
            self.clock.set();
        }
        Ok(())
    }

    /// `ResetVirtualMachine` (`virDomainReset`).
    async fn reset(&self) -> Result<(), LauncherError> {
        let not_found = self.not_found();
        let reset = |domain: Option<ChangeableDomain>| Ok(domain.ok_or(not_found)?.reset()?);
        admit::change(&self.libvirt, Request::Reset, "resetting the domain", reset).await
    }

    /// `SoftRebootVirtualMachine` (`virDomainReboot`): asks the guest to reboot, through its agent
    /// if that answers, else by ACPI.
    // D-vm-8 (docs/differences.md).
    async fn soft_reboot(&self, vmi: &Vmi) -> Result<(), LauncherError> {
        let what = "rebooting the guest";
        let Some(permit) = admit::permit_in_time(&self.libvirt, Request::SoftReboot, what).await?
        else {
            return Ok(());
        };
        let features = vmi.spec.domain.features.as_ref();
        let acpi = features.is_none_or(|features| features.acpi.enabled != Some(false));
        let not_found = self.not_found();
        let reboot = move |domain: Option<ChangeableDomain>| {
            let domain = domain.ok_or(not_found)?;
            let live = domain.xml(XmlKind::Live)?;
            let live = DomainSpec::from_xml(&live).map_err(LauncherError::Xml)?;
            let has_agent = live.devices.has_agent() && answers(&domain);
            let mode = match (has_agent, acpi) {
                (true, _) => Reboot::Agent,
                (false, true) => Reboot::Acpi,
                (false, false) => return Err(LauncherError::NoWayToReboot),
            };
            match domain.reboot(mode) {
                // The agent stops with the guest, often before it answers.
                Err(error) if error.code == code::AGENT_UNRESPONSIVE => Ok(()),
                result => Ok(result?),
            }
        };
        if self.libvirt.vm.has_agent() {
            // A silent agent must not delay a reset, so this waits among the calls to the agent.
            let limit = CHANGE_TIMEOUT;
            let reboot = move |domain: &libvirt::DomainHandle| {
                reboot(Some(domain.clone().changeable(&permit)))
            };
            return self.libvirt.agent_call(what, limit, reboot).await;
        }
        self.libvirt.change(&permit, what, reboot).await
    }

    /// `ShutdownVirtualMachine` (`virDomainShutdownFlags`): starts the grace period and asks the
    /// guest to shut down, through its agent if connected, and by ACPI otherwise or if the agent
    /// refuses. The call waits for no turn: a change that hangs must not keep virt-handler from
    /// killing the guest when its grace period is over.
    ///
    /// The call to the agent returns when the guest has ended, or after a minute (5 s if the agent
    /// is silent), so it runs in the background. virt-handler repeats its request, which sends ACPI
    /// if the agent was asked at least [`AGENT_SHUTDOWN_TIMEOUT`] before.
    ///
    /// # Errors
    /// The request is refused, or libvirt's error.
    // D-vm-4, D-vm-5 (docs/differences.md).
    pub(crate) async fn shutdown(&self, request: Request) -> Result<(), LauncherError> {
        let what = "shutting the guest down";
        // The permit waits for the first read of the domain, on which everything below depends.
        let Some(permit) = admit::permit_in_time(&self.libvirt, request, what).await? else {
            return Ok(());
        };
        let Snapshot {
            phase, document, ..
        } = self.libvirt.vm.snapshot();
        // The clock starts even if the request fails, or waits for a reset that hangs: virt-handler
        // kills when it runs out.
        if phase.is_starting() || phase.is_visible() && phase != Phase::Ended {
            let vm = &self.libvirt.vm;
            vm.change_metadata(Metadata::shutdown_requested);
        }
        let button = if document.is_none_or(|document| has_acpi(&document)) {
            Shutdown::Acpi
        } else {
            Shutdown::Default
        };
        let ask_agent = self.libvirt.vm.has_agent();
        // Also without an agent: one that was asked a moment ago disconnects when its guest ends.
        let agent_call = self.libvirt.begin_agent_shutdown();
        let shut_down = move |domain: Option<ChangeableDomain>| {
            let Some(domain) = domain else { return Ok(()) };
            if !matches!(
                domain.state()?,
                DomainState::Running(_) | DomainState::Paused(_)
            ) {
                return Ok(());
            }
            match agent_call {
                Ok(call) if ask_agent => {
                    tokio::task::spawn_blocking(move || shut_down_by_agent(&domain, button, call));
                    Ok(())
                }
                Err(asked) if asked < AGENT_SHUTDOWN_TIMEOUT => Ok(()),
                _ => Ok(domain.shutdown(button)?),
            }
        };
        self.libvirt.change(&permit, what, shut_down).await
    }

    /// `DeleteVirtualMachine`: removes the definition, and counts the removal unless it is refused.
    async fn remove(&self) -> Result<(), LauncherError> {
        admit::look(&self.libvirt.vm).await?;
        self.libvirt.vm.admit(Request::Delete)?;
        self.removals.count(self.undefine(Request::Delete)).await
    }

    /// Undefines the domain (`virDomainUndefineFlags`), but not its NVRAM file, which may be on a
    /// volume of the VMI.
    ///
    /// # Errors
    /// The request is refused, or libvirt's error.
    pub(crate) async fn undefine(&self, request: Request) -> Result<(), LauncherError> {
        let undefine = |domain: Option<ChangeableDomain>| {
            let Some(domain) = domain else { return Ok(()) };
            match domain.undefine(Undefine::KeepNvram) {
                Err(error) if error.is_no_domain() => Ok(()),
                result => Ok(result?),
            }
        };
        admit::change(&self.libvirt, request, "removing the definition", undefine).await
    }

    /// libvirt's own error for a missing domain.
    fn not_found(&self) -> LauncherError {
        let message = format!(
            "Domain not found: no domain with matching name '{}'",
            self.libvirt.name
        );
        libvirt::Error {
            code: code::NO_DOMAIN,
            domain: FROM_QEMU,
            message,
        }
        .into()
    }
}

/// Whether the guest agent answers. Its channel also stays open when it hangs.
fn answers(domain: &libvirt::DomainHandle) -> bool {
    let ping = poll::command(domain, "guest-ping");
    !ping.is_err_and(|error| error.is_agent_silent())
}

/// Blocks until the guest is shut off (`VIR_DOMAIN_SHUTDOWN_GUEST_AGENT`) or its agent fails to do
/// so; then tries ACPI (`VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN`).
fn shut_down_by_agent(domain: &ChangeableDomain, button: Shutdown, call: AgentShutdown) {
    let asked = domain.shutdown(Shutdown::Agent);
    drop(call);
    let Err(error) = asked else { return };
    if !matches!(
        domain.state(),
        Ok(DomainState::Running(_) | DomainState::Paused(_))
    ) {
        return;
    }
    tracing::info!(reason = %error, "The guest agent does not shut the guest down; trying ACPI");
    if let Err(error) = domain.shutdown(button) {
        tracing::warn!(reason = %error, "The guest could not be asked to shut down");
    }
}

// D-vm-5 (docs/differences.md).
fn has_acpi(document: &Domain) -> bool {
    let features = document.spec.features.as_ref();
    features.is_some_and(|features| features.acpi.is_some())
}

/// Pauses a guest again that libvirt has resumed at the end of `job`, if its user has asked
/// meanwhile to pause it.
// D-vm-21 (docs/differences.md).
pub(super) async fn pause_as_requested(libvirt: &LibvirtDomain, job: &Job) {
    if !libvirt.vm.is_pause_requested() {
        return;
    }
    // In turn: an unpause may come.
    let (permit, vm) = (job.turn().await, libvirt.vm.clone());
    let pause = move |domain: Option<ChangeableDomain>| match domain {
        Some(domain) if vm.is_pause_requested() && domain.state()?.is_running() => {
            Ok(domain.suspend()?)
        }
        _ => Ok(()),
    };
    let what = "pausing the guest again";
    if let Err(error) = libvirt.change(&permit, what, pause).await {
        tracing::warn!(reason = %os::logging::chain(&error), "The guest may run although it was paused");
    }
}
