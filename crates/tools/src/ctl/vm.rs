//! A VM of `run`, from its launcher's start to its end.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::CtlError;
use super::client::Client;
use super::phases::Phases;
use super::stop::Stop;
use super::watch::{Relay, Report};
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use os::fs_events;
use os::logging::chain;

/// KubeVirt's default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: u64 = 30;
/// How long the launcher may take to end after its domain is gone.
const EXIT: Duration = Duration::from_secs(60);
/// The same, when it has not started a domain in order.
const GIVE_UP: Duration = Duration::from_secs(15);
/// Until a launcher that is still there is told again to end its guest.
const RETRY: Duration = Duration::from_millis(200);
/// Until a guest that could not be asked is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the guest may take to shut down.
#[must_use]
pub fn grace(vmi: &Value) -> Duration {
    Duration::from_secs(
        vmi.pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_u64)
            .unwrap_or(DEFAULT_GRACE),
    )
}

/// A launcher and its guest.
#[derive(Debug)]
pub struct Vm<'a> {
    vmi: &'a Value,
    launcher: Child,
    client: Option<Client>,
    reports: UnboundedReceiver<Report>,
    relay: Relay,
    down: bool,
}

impl<'a> Vm<'a> {
    /// A launcher that has been started, what it reports, and who else is told.
    #[must_use]
    pub fn new(
        vmi: &'a Value,
        launcher: Child,
        reports: UnboundedReceiver<Report>,
        relay: Relay,
    ) -> Self {
        Self {
            vmi,
            launcher,
            client: None,
            reports,
            relay,
            down: false,
        }
    }

    /// A text inside the VMI, empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.vmi
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Waits for the cmd socket and makes the first call.
    ///
    /// # Errors
    /// If the launcher ends before, or speaks another version.
    pub async fn connect(&mut self, socket: &Path) -> Result<(), CtlError> {
        tokio::select! {
            appeared = fs_events::appears(socket) => appeared.map_err(CtlError::file("wait for", socket))?,
            status = self.launcher.wait() => {
                return Err(CtlError::Run(format!("the launcher ended before it was ready ({})", status.map_err(CtlError::Runtime)?)));
            }
        }
        let client = Client::connect(socket).await?;
        let versions = client.versions().await?;
        if !versions.contains(&1) {
            return Err(CtlError::Run(format!(
                "the launcher speaks cmd versions {versions:?}, not 1"
            )));
        }
        self.client = Some(client);
        Ok(())
    }

    /// Sends the VMI.
    ///
    /// # Errors
    /// If the launcher refuses it, or ends.
    pub async fn sync(&mut self) -> Result<(), CtlError> {
        let refused = match self
            .connected()?
            .sync(self.vmi, VirtualMachineOptions::default())
            .await
        {
            Err(error) => error,
            Ok(()) => return Ok(()),
        };
        // A launcher that dies takes the connection with it, which is seen first.
        match timeout(RETRY, self.launcher.wait()).await {
            Ok(status) => Err(ended_alone(status.map_err(CtlError::Runtime)?)),
            Err(_) => Err(refused),
        }
    }

    /// Waits for the next report; true if the guest is down.
    ///
    /// # Errors
    /// If the launcher has ended under its guest.
    pub async fn next_report(&mut self, phases: &Phases) -> Result<bool, CtlError> {
        tokio::select! {
            report = self.reports.recv() => {
                if let Some(report) = report {
                    phases.report(&report);
                    self.relay.pass_on(&report);
                    self.down |= report.is_final() || matches!(report.state(), Some("Shutoff" | "Crashed"));
                }
                Ok(self.down)
            }
            status = self.launcher.wait() => {
                let status = status.map_err(CtlError::Runtime)?;
                if self.down { Ok(true) } else { Err(ended_alone(status)) }
            }
        }
    }

    /// Asks the guest to shut down, ends it after the grace period or when somebody insists, and sees the launcher out.
    ///
    /// # Errors
    /// If the launcher does not do its part.
    pub async fn end(&mut self, phases: &Phases, stop: &mut Stop) -> Result<(), CtlError> {
        if self
            .launcher
            .try_wait()
            .map_err(CtlError::Runtime)?
            .is_some()
        {
            return Ok(());
        }
        if !self.down {
            let grace = grace(self.vmi);
            let stays = tokio::select! {
                obeyed = timeout(grace, self.until_obeyed(phases)) => match obeyed {
                    Ok(obeyed) => { obeyed?; None }
                    Err(_) => Some(format!("the guest has not obeyed within {} s", grace.as_secs())),
                },
                () = stop.asked() => Some("the guest is ended at once".to_owned()),
            };
            if let Some(why) = stays {
                phases.note(&why);
                self.act(Action::Kill).await?;
            }
        }
        phases.reached("guest is down");
        self.see_out(phases).await
    }

    /// Ends a start that has failed or is not wanted any more. A guest that is there has hardly begun. The launcher may
    /// still be about to start it, so it is told more than once.
    pub async fn give_up(&mut self) {
        if let Some(pid) = self
            .launcher
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = async {
            while timeout(RETRY, self.launcher.wait()).await.is_err() {
                let _ = self.act(Action::Kill).await;
                let _ = self.act(Action::Delete).await;
            }
        };
        if timeout(GIVE_UP, ended).await.is_err() {
            let _ = self.launcher.kill().await;
        }
    }

    async fn until_obeyed(&mut self, phases: &Phases) -> Result<(), CtlError> {
        let mut told = false;
        while let Err(error) = self.act(Action::Shutdown).await {
            if !std::mem::replace(&mut told, true) {
                phases.note(&format!(
                    "the guest cannot be asked to shut down: {}",
                    chain(&error)
                ));
            }
            if let Ok(down) = timeout(AGAIN, self.next_report(phases)).await
                && down?
            {
                return Ok(());
            }
        }
        phases.reached("guest is asked to shut down");
        while !self.next_report(phases).await? {}
        Ok(())
    }

    /// The launcher leaves once its domain is gone.
    async fn see_out(&mut self, phases: &Phases) -> Result<(), CtlError> {
        // That it is gone already is no failure.
        let _ = self.act(Action::Delete).await;
        match timeout(EXIT, self.launcher.wait()).await {
            Ok(status) => {
                let status = status.map_err(CtlError::Runtime)?;
                phases.reached("launcher has ended");
                if status.success() {
                    Ok(())
                } else {
                    Err(CtlError::Run(format!("the launcher ended with {status}")))
                }
            }
            Err(_) => Err(CtlError::Run(format!(
                "the launcher has not ended {} s after its domain",
                EXIT.as_secs()
            ))),
        }
    }

    async fn act(&self, action: Action) -> Result<(), CtlError> {
        self.connected()?.act(action, self.vmi).await
    }

    fn connected(&self) -> Result<&Client, CtlError> {
        self.client
            .as_ref()
            .ok_or_else(|| CtlError::Run("the launcher is not ready".into()))
    }
}

fn ended_alone(status: ExitStatus) -> CtlError {
    CtlError::Run(format!("the launcher ended on its own ({status})"))
}
