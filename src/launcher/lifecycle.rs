//! Pause, unpause, reset, reboot, shut down, kill, delete. All may be repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CHANGE, Launcher, LauncherError, blocking, lock, within};
use api::vmi::Vmi;
use domain::Domain;
use domain::DomainSpec;
use libvirt::{self, Reboot, Shutdown, State, Undefine, XmlKind, code};

/// `VIR_FROM_QEMU`, the part of libvirt that does not find a domain.
const FROM_QEMU: i32 = 10;
/// The guest agent's channel.
const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

impl Launcher {
    /// Stops the vCPUs, until [`Self::unpause`]: no sync resumes them.
    pub(super) async fn pause(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.change("pausing the domain", |launcher, domain| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            if domain.state()?.0 == State::Running {
                domain.suspend()?;
                launcher.paused_by_user.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
        .await
    }

    /// Lets the vCPUs run again.
    pub(super) async fn unpause(self: &Arc<Self>) -> Result<(), LauncherError> {
        let resumed = self
            .change("resuming the domain", |launcher, domain| {
                let domain = domain.ok_or(LauncherError::NoDomain)?;
                let paused = domain.state()?.0 == State::Paused;
                if paused {
                    domain.resume()?;
                    launcher.paused_by_user.store(false, Ordering::Relaxed);
                }
                Ok(paused)
            })
            .await?;
        if resumed {
            self.set_guest_time();
        }
        Ok(())
    }

    /// Presses the reset button.
    pub(super) async fn reset(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.at_once("resetting the domain", |launcher, domain| {
            Ok(domain.ok_or_else(|| launcher.not_found())?.reset()?)
        })
        .await
    }

    /// Asks the guest to reboot: its agent where it is connected, else ACPI.
    pub(super) async fn soft_reboot(self: &Arc<Self>, vmi: &Vmi) -> Result<(), LauncherError> {
        let acpi = vmi
            .spec
            .domain
            .features
            .as_ref()
            .is_none_or(|features| features.acpi.enabled != Some(false));
        self.at_once("rebooting the guest", move |launcher, domain| {
            let domain = domain.ok_or_else(|| launcher.not_found())?;
            let live =
                DomainSpec::from_xml(&domain.xml(XmlKind::Live)?).map_err(LauncherError::Xml)?;
            let mode = match (has_agent(&live), acpi) {
                (true, _) => Reboot::Agent,
                (false, true) => Reboot::Acpi,
                (false, false) => return Err(LauncherError::NoWayToReboot),
            };
            match domain.reboot(mode) {
                // The agent goes down with the guest, often before it has answered.
                Err(error) if error.code == code::AGENT_UNRESPONSIVE => Ok(()),
                result => Ok(result?),
            }
        })
        .await
    }

    /// Asks the guest to shut down, and starts the clock of its grace period. Returns at once: libvirt's own choice
    /// would try the agent first, and can hang for a minute when that is silent.
    pub(super) async fn shutdown(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.change("shutting the guest down", |launcher, domain| {
            let Some(domain) = domain else { return Ok(()) };
            if !matches!(domain.state()?.0, State::Running | State::Paused) {
                return Ok(());
            }
            // Also when the request fails: virt-handler kills the domain only once this clock has run out.
            if launcher.metadata.shutdown_requested() {
                launcher.pending.refresh();
            }
            let has_acpi = lock(&launcher.last).as_ref().is_none_or(has_acpi);
            Ok(domain.shutdown(if has_acpi {
                Shutdown::Acpi
            } else {
                Shutdown::Default
            })?)
        })
        .await
    }

    /// Pulls the plug; QEMU gets the time to flush its caches. Waits for nobody: a start that hangs is killed too.
    pub(super) async fn kill(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.at_once("killing the domain", |launcher, domain| {
            let Some(domain) = domain else { return Ok(()) };
            let starting = *launcher.starting.borrow();
            let result = domain.state().and_then(|(state, _)| match state {
                State::NoState | State::Shutoff if !starting => Ok(()),
                _ => domain.destroy(true),
            });
            match result {
                // It is gone, or down, already.
                Err(error) if error.is_no_domain() || error.is_operation_invalid() => Ok(()),
                result => Ok(result?),
            }
        })
        .await
    }

    /// Removes the definition. NVRAM stays: it may be on a volume of the VMI's.
    pub(super) async fn delete(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.change("removing the definition", |_, domain| {
            let Some(domain) = domain else { return Ok(()) };
            match domain.undefine(Undefine::KeepNvram) {
                Err(error) if error.is_no_domain() => Ok(()),
                result => Ok(result?),
            }
        })
        .await
    }

    /// Whether the guest agent was connected when the domain was seen last.
    pub(super) fn has_agent(&self) -> bool {
        lock(&self.last)
            .as_ref()
            .is_some_and(|document| has_agent(&document.spec))
    }

    /// A change to the domain: waits its turn, and keeps the lock until it is really done.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl FnOnce(&Arc<Self>, Option<libvirt::Domain>) -> Result<T, LauncherError>
        + Send
        + 'static,
    ) -> Result<T, LauncherError> {
        let launcher = self.clone();
        let turn = tokio::time::timeout(CHANGE, self.changes.clone().lock_owned());
        let Ok(turn) = turn.await else {
            return Err(LauncherError::Busy { what });
        };
        self.at_once(what, move |_, domain| {
            let _turn = turn;
            work(&launcher, domain)
        })
        .await
    }

    /// A call to libvirt that needs no turn.
    async fn at_once<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl FnOnce(&Arc<Self>, Option<libvirt::Domain>) -> Result<T, LauncherError>
        + Send
        + 'static,
    ) -> Result<T, LauncherError> {
        let launcher = self.clone();
        let call = blocking(what, move || {
            let domain = launcher.connection().lookup(&launcher.domain_name)?;
            work(&launcher, domain)
        });
        within(what, CHANGE, call).await
    }

    /// libvirt's own words for it.
    fn not_found(&self) -> LauncherError {
        let message = format!(
            "Domain not found: no domain with matching name '{}'",
            self.domain_name
        );
        libvirt::Error {
            code: code::NO_DOMAIN,
            domain: FROM_QEMU,
            message,
        }
        .into()
    }
}

fn has_agent(domain: &DomainSpec) -> bool {
    let target = |channel: &domain::character::Channel| {
        channel
            .target
            .as_ref()
            .is_some_and(|target| target.name == AGENT_CHANNEL && target.state == "connected")
    };
    domain.devices.channels.iter().any(target)
}

fn has_acpi(document: &Domain) -> bool {
    document
        .spec
        .features
        .as_ref()
        .is_some_and(|features| features.acpi.is_some())
}
