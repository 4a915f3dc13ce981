//! The launcher of a VM of `run`, from its first call to its exit.

use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::control::{RunPhase, RunProgress, StopRequests};
use super::error::RunError;
use super::launcher_log::failed_sync;
use super::processes::terminate;
use super::start_args::SuperviseArgs;
use super::vm_dir::VmDir;
use crate::error::{CtlError, RuntimeError, TextError, fail, text_error};
use crate::json::text_at;
use crate::reports::events::LauncherEvent;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use client::refusal::without_own_sidecar;
use client::{CallError, Client, GuestState, has_arrived, is_down};
use domain::Domain;
use os::inotify;

/// Interval of shutdown requests: a booting guest misses the first, some guests react only to the
/// second, and ACPI follows if the agent has not ended the guest.
pub const REQUEST_INTERVAL: Duration = Duration::from_secs(5);
/// KubeVirt's default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: u64 = 30;
/// Limit for the launcher to exit after its domain is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for the launcher to force its guest off and exit: a Kill has 20 s.
const FORCE_TIMEOUT: Duration = Duration::from_secs(25);
/// Limit for the launcher to exit when its start is aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(15);
/// Delay between attempts to kill the guest of a launcher whose start is aborted.
const KILL_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Interval of checking whether a slow start has ended: a failed one causes no event.
const START_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Whether a start that has outlived its call goes on. False for KubeVirt's launcher, which does
/// not tell.
async fn is_starting_slowly(client: &Client) -> bool {
    match client.debug().await {
        Ok(launcher) => matches!(launcher.phase.as_str(), "Preparing" | "Starting"),
        // libvirt is busy with the start.
        Err(error) => error.is_in_progress(),
    }
}

/// The guest's grace period.
pub fn grace(vmi: &Value) -> Duration {
    let seconds = vmi.pointer("/spec/terminationGracePeriodSeconds");
    let seconds = seconds.and_then(Value::as_u64);
    Duration::from_secs(seconds.unwrap_or(DEFAULT_GRACE_SECONDS))
}

/// The VM of a supervisor, and what it was started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vm<'a> {
    pub args: &'a SuperviseArgs,
    pub vmi: &'a Value,
    pub dir: &'a VmDir,
    pub progress: &'a RunProgress,
}

impl<'a> Vm<'a> {
    pub fn name(&self) -> &'a str {
        text_at(self.vmi, "/metadata/name")
    }

    /// The guest's grace period by the VMI of the last sync.
    pub fn grace(&self) -> Duration {
        let last = self.dir.load_vmi();
        grace(last.as_ref().unwrap_or(self.vmi))
    }
}

/// A launcher and its guest.
#[derive(Debug)]
pub(super) struct LauncherProcess<'a> {
    vm: Vm<'a>,
    child: Child,
    client: Option<Client>,
    events: Receiver<LauncherEvent>,
    /// Whether the guest has ended.
    pub is_down: bool,
    /// How the guest has crashed, if it has.
    crash: Option<&'static str>,
}

impl<'a> LauncherProcess<'a> {
    /// A launcher that has been started, and its events.
    pub fn new(vm: Vm<'a>, child: Child, events: Receiver<LauncherEvent>) -> Self {
        Self {
            vm,
            child,
            client: None,
            events,
            is_down: false,
            crash: None,
        }
    }

    /// Checks how the guest ended.
    ///
    /// # Errors
    /// It or its QEMU crashed.
    pub fn check_end(&self) -> Result<(), TextError> {
        match self.crash {
            Some(how) => fail!("the guest has crashed: {how}"),
            None => Ok(()),
        }
    }

    /// Waits for the cmd socket, and connects to it.
    ///
    /// # Errors
    /// The launcher exits first.
    pub async fn connect(&mut self) -> Result<(), CtlError> {
        let socket = self.vm.dir.cmd_socket();
        tokio::select! {
            () = inotify::appears(&socket) => {}
            status = self.child.wait() => {
                return Err(RunError::EndedBeforeReady(status.map_err(RuntimeError)?).into());
            }
        }
        self.client = Some(self.vm.dir.client().await?);
        Ok(())
    }

    /// Sends the VMI, and waits until the guest runs.
    ///
    /// # Errors
    /// The launcher refuses it, exits, or does not start the guest in time.
    pub async fn sync(&mut self, limit: Duration) -> Result<(), CtlError> {
        if let Ok(synced) = timeout(limit, self.sync_to_end()).await {
            return synced;
        }
        Err(RunError::Late("the guest has not started".to_owned(), limit).into())
    }

    /// Repeats the call while the launcher is still starting the guest.
    async fn sync_to_end(&mut self) -> Result<(), CtlError> {
        loop {
            let options = VirtualMachineOptions::default();
            let Err(refused) = self.client()?.sync(self.vm.vmi, options).await else {
                return Ok(());
            };
            // When a launcher dies, its connection ends first.
            if let Ok(status) = timeout(KILL_RETRY_DELAY, self.child.wait()).await {
                let status = status.map_err(RuntimeError)?;
                return Err(RunError::EndedOnItsOwn(status).into());
            }
            if !refused.is_in_progress() {
                return Err(refused.into());
            }
            // Another call would start the guest again if this start fails.
            while is_starting_slowly(self.client()?).await {
                tokio::time::sleep(START_POLL_INTERVAL).await;
            }
            // The call of a sync that has failed is over, so only the log has the reason.
            if let Some(reason) = failed_sync(&self.vm.dir.log_file()) {
                return Err(RunError::NotStarted(reason).into());
            }
        }
    }

    /// Waits for the next event, or until the launcher has exited after its guest.
    ///
    /// # Errors
    /// The launcher exited under its guest.
    pub async fn next_event(&mut self) -> Result<(), CtlError> {
        tokio::select! {
            Some(event) = self.events.recv() => {
                self.note_message(&event);
                if event.has_left() && !self.is_down {
                    self.vm.progress.note("the VM has migrated to another launcher");
                }
                self.is_down |= event.is_final() || event.domain().is_some_and(|it| is_down(Some(it)));
                self.crash = event.crash().or(self.crash);
                Ok(())
            }
            status = self.child.wait() => {
                let status = status.map_err(RuntimeError)?;
                if self.is_down { Ok(()) } else { Err(RunError::EndedOnItsOwn(status).into()) }
            }
        }
    }

    /// Waits for the guest to arrive by a migration. Returns false if the launcher exited without
    /// it, as after a failed migration.
    ///
    /// # Errors
    /// The launcher crashed.
    pub async fn wait_for_guest(&mut self) -> Result<bool, CtlError> {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    self.note_message(&event);
                    if event.domain().is_some_and(has_arrived) {
                        return Ok(true);
                    }
                }
                status = self.child.wait() => {
                    let status = status.map_err(RuntimeError)?;
                    return if status.success() { Ok(false) } else { Err(RunError::EndedOnItsOwn(status).into()) };
                }
            }
        }
    }

    /// Whether the launcher has a guest that arrived by a migration.
    pub async fn has_guest(&self) -> bool {
        self.domain().await.as_ref().is_some_and(has_arrived)
    }

    /// Forces the guest off and waits for the launcher to exit. If that takes too long, kills the
    /// launcher: its QEMU is then an orphan, which the supervisor ends.
    ///
    /// # Errors
    /// The launcher exits with a failure.
    pub async fn force_off(&mut self) -> Result<(), CtlError> {
        let forced = async {
            self.act(Action::Kill).await?;
            self.vm.progress.phase(RunPhase::GuestDown);
            self.wait_for_exit().await
        };
        if let Ok(ended) = timeout(FORCE_TIMEOUT, forced).await
            && !matches!(&ended, Err(error) if error.of::<CallError>().is_some())
        {
            return ended;
        }
        let note = "the launcher does not end the guest, so both are killed";
        self.vm.progress.note(note);
        Ok(self.child.kill().await.map_err(RuntimeError)?)
    }

    /// Asks the guest to shut down, repeatedly because a booting guest misses requests. Forces it
    /// off after the grace period or on request, and waits for the launcher to exit.
    ///
    /// # Errors
    /// The launcher does not exit, or exits with a failure.
    pub async fn end(&mut self, stop: &mut StopRequests) -> Result<(), CtlError> {
        if self.child.try_wait().map_err(RuntimeError)?.is_some() {
            return Ok(());
        }
        if !self.is_down {
            let grace = self.vm.grace();
            let shut_down = timeout(grace, self.shut_down_guest());
            let kill_reason = tokio::select! {
                biased;
                () = stop.forced() => Some("the guest is forced off".to_owned()),
                ended = shut_down => match ended {
                    Ok(ended) => { ended?; None }
                    Err(_) => Some(format!("the guest has not shut down within {} s", grace.as_secs())),
                },
            };
            if let Some(why) = kill_reason {
                self.vm.progress.note(&why);
                return self.force_off().await;
            }
        }
        self.vm.progress.phase(RunPhase::GuestDown);
        self.wait_for_exit().await
    }

    /// Ends a launcher whose start has failed or is no longer wanted. It may be about to start the
    /// guest, so the guest is killed repeatedly until the launcher has exited.
    pub async fn abort(&mut self) {
        terminate(&self.child);
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

    async fn shut_down_guest(&mut self) -> Result<(), CtlError> {
        if GuestState::of(self.domain().await.as_ref()) == GuestState::Paused {
            let name = self.vm.name();
            self.vm.progress.note(&format!(
                "the guest is paused, and shuts down only once it is resumed: launcherctl unpause {name}; launcherctl stop {name} --force ends it now"
            ));
        }
        self.vm.progress.phase(RunPhase::ShutdownRequested);
        let (client, vmi) = (self.client()?.clone(), self.vm.vmi);
        let ask = async {
            loop {
                // One that cannot be asked yet is asked again.
                let _ = client.act(Action::Shutdown, vmi).await;
                tokio::time::sleep(REQUEST_INTERVAL).await;
            }
        };
        let down = async {
            while !self.is_down {
                self.next_event().await?;
            }
            Ok(())
        };
        tokio::select! {
            down = down => down,
            never = ask => never,
        }
    }

    /// The launcher exits once its domain is gone.
    async fn wait_for_exit(&mut self) -> Result<(), CtlError> {
        // It may be gone already.
        let _ = self.act(Action::Delete).await;
        let Ok(status) = timeout(EXIT_TIMEOUT, self.child.wait()).await else {
            let seconds = EXIT_TIMEOUT.as_secs();
            fail!("the launcher has not ended {seconds} s after its domain");
        };
        let status = status.map_err(RuntimeError)?;
        self.vm.progress.phase(RunPhase::LauncherEnded);
        if !status.success() {
            fail!("the launcher ended with {status}");
        }
        Ok(())
    }

    /// Notes what virt-handler would record in Kubernetes.
    fn note_message(&self, event: &LauncherEvent) {
        if let LauncherEvent::Kubernetes(event) = event {
            let text = without_own_sidecar(text_at(event, "/message"));
            self.vm.progress.note(&text);
        }
    }

    async fn domain(&self) -> Option<Domain> {
        self.client.as_ref()?.domain().await.ok().flatten()
    }

    async fn act(&self, action: Action) -> Result<(), CtlError> {
        Ok(self.client()?.act(action, self.vm.vmi).await?)
    }

    fn client(&self) -> Result<&Client, TextError> {
        let client = self.client.as_ref();
        client.ok_or_else(|| text_error!("the launcher is not ready"))
    }
}
