//! The launcher of a VM of `run`, from its first call to its exit.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::progress::Progress;
use crate::ctl::client::Client;
use crate::ctl::error::{CtlError, RunError};
use crate::ctl::events::LauncherEvent;
use crate::ctl::json::text_at;
use crate::ctl::relay::Relay;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use os::inotify;
use os::logging::chain;
use os::signals::EndSignals;

/// KubeVirt's default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: u64 = 30;
/// How long the launcher may take to exit after its domain is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the launcher may take to exit when its start is aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two attempts to kill the guest of a launcher whose start is aborted.
const KILL_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Between two attempts to ask the guest to shut down.
const SHUTDOWN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long the guest may take to shut down.
#[must_use]
pub fn grace(vmi: &Value) -> Duration {
    Duration::from_secs(
        vmi.pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_u64)
            .unwrap_or(DEFAULT_GRACE_SECONDS),
    )
}

/// A launcher and its guest.
#[derive(Debug)]
pub struct LauncherProcess<'a> {
    vmi: &'a Value,
    child: Child,
    client: Option<Client>,
    events: Receiver<LauncherEvent>,
    relay: Relay,
    is_down: bool,
}

impl<'a> LauncherProcess<'a> {
    /// A launcher that has been started, its events, and the relay that passes them on.
    #[must_use]
    pub fn new(
        vmi: &'a Value,
        child: Child,
        events: Receiver<LauncherEvent>,
        relay: Relay,
    ) -> Self {
        Self {
            vmi,
            child,
            client: None,
            events,
            relay,
            is_down: false,
        }
    }

    /// The VMI's UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        text_at(self.vmi, "/metadata/uid")
    }

    /// Waits for the cmd socket and makes the first call.
    ///
    /// # Errors
    /// If the launcher ends before, or speaks another version.
    pub async fn connect(&mut self, socket: &Path) -> Result<(), CtlError> {
        tokio::select! {
            () = inotify::appears(socket) => {}
            status = self.child.wait() => {
                return Err(RunError::EndedBeforeReady(status.map_err(CtlError::Runtime)?).into());
            }
        }
        let client = Client::connect(socket).await?;
        let versions = client.versions().await?;
        if !versions.contains(&1) {
            return Err(RunError::Versions(versions).into());
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
            .client()?
            .sync(self.vmi, VirtualMachineOptions::default())
            .await
        {
            Err(error) => error.into(),
            Ok(()) => return Ok(()),
        };
        // A launcher that dies takes the connection with it, which is seen first.
        match timeout(KILL_RETRY_DELAY, self.child.wait()).await {
            Ok(status) => Err(RunError::EndedOnItsOwn(status.map_err(CtlError::Runtime)?).into()),
            Err(_) => Err(refused),
        }
    }

    /// Waits for the next event; true if the guest is down.
    ///
    /// # Errors
    /// If the launcher has ended under its guest.
    pub async fn next_event(&mut self, progress: &Progress) -> Result<bool, CtlError> {
        tokio::select! {
            event = self.events.recv() => {
                if let Some(event) = event {
                    progress.event(&event);
                    self.relay.send(&event);
                    self.is_down |= event.is_final() || matches!(event.state(), Some("Shutoff" | "Crashed"));
                }
                Ok(self.is_down)
            }
            status = self.child.wait() => {
                let status = status.map_err(CtlError::Runtime)?;
                if self.is_down { Ok(true) } else { Err(RunError::EndedOnItsOwn(status).into()) }
            }
        }
    }

    /// Asks the guest to shut down, kills it after the grace period or at a second signal, and waits for the launcher to
    /// exit.
    ///
    /// # Errors
    /// If the launcher does not answer or does not exit.
    pub async fn end(
        &mut self,
        progress: &Progress,
        stop: &mut EndSignals,
    ) -> Result<(), CtlError> {
        if self.child.try_wait().map_err(CtlError::Runtime)?.is_some() {
            return Ok(());
        }
        if !self.is_down {
            let grace = grace(self.vmi);
            let kill_reason = tokio::select! {
                ended = timeout(grace, self.shut_down_guest(progress)) => match ended {
                    Ok(ended) => { ended?; None }
                    Err(_) => Some(format!("the guest has not shut down within {} s", grace.as_secs())),
                },
                _ = stop.next() => Some("the guest is ended at once".to_owned()),
            };
            if let Some(why) = kill_reason {
                progress.note(&why);
                self.act(Action::Kill).await?;
            }
        }
        progress.phase("guest is down");
        self.wait_for_exit(progress).await
    }

    /// Ends a launcher whose start has failed or is not wanted any more. It may be about to start the guest, so the guest
    /// is killed until the launcher has exited.
    pub async fn abort(&mut self) {
        if let Some(pid) = self
            .child
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = async {
            while timeout(KILL_RETRY_DELAY, self.child.wait()).await.is_err() {
                let _ = self.act(Action::Kill).await;
                let _ = self.act(Action::Delete).await;
            }
        };
        if timeout(ABORT_TIMEOUT, ended).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    async fn shut_down_guest(&mut self, progress: &Progress) -> Result<(), CtlError> {
        let mut reported = false;
        while let Err(error) = self.act(Action::Shutdown).await {
            if !std::mem::replace(&mut reported, true) {
                progress.note(&format!(
                    "the guest cannot be asked to shut down: {}",
                    chain(&error)
                ));
            }
            if let Ok(down) = timeout(SHUTDOWN_RETRY_DELAY, self.next_event(progress)).await
                && down?
            {
                return Ok(());
            }
        }
        progress.phase("guest is asked to shut down");
        while !self.next_event(progress).await? {}
        Ok(())
    }

    /// The launcher exits once its domain is gone.
    async fn wait_for_exit(&mut self, progress: &Progress) -> Result<(), CtlError> {
        // It may be gone already.
        let _ = self.act(Action::Delete).await;
        match timeout(EXIT_TIMEOUT, self.child.wait()).await {
            Ok(status) => {
                let status = status.map_err(CtlError::Runtime)?;
                progress.phase("launcher has ended");
                if status.success() {
                    Ok(())
                } else {
                    Err(RunError::LauncherFailed(status).into())
                }
            }
            Err(_) => Err(RunError::StillRunning(EXIT_TIMEOUT).into()),
        }
    }

    async fn act(&self, action: Action) -> Result<(), CtlError> {
        Ok(self.client()?.act(action, self.vmi).await?)
    }

    fn client(&self) -> Result<&Client, RunError> {
        self.client.as_ref().ok_or(RunError::NotReady)
    }
}
