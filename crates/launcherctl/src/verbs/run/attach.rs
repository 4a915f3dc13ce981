//! Attaches a terminal to a VM: shows its supervisor's reports, and is its console.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;

use super::has_no_console;
use crate::error::CtlError;
use crate::host::console::{Console, ConsoleEvent, Terminal, is_terminal};
use crate::host::console_hub::CONSOLE_SOCKET;
use crate::host::control::{ControlClient, ControlRequest, RunPhase, Update};
use crate::host::network::HostNetwork;
use crate::host::vm_dir::VmDir;
use crate::verbs::screen::Screen;
use os::signals::EndSignals;

/// Limit for showing the guest's last output: standard output may be a pipe that nobody reads.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// How the terminal left the VM.
#[derive(Debug, Clone, Copy)]
pub enum AttachmentEnd {
    /// The VM has ended.
    Ended(ExitCode),
    /// The VM keeps running.
    Detached,
}

/// A terminal attached to a VM.
pub struct Attachment<'a> {
    name: &'a str,
    dir: &'a VmDir,
    control: ControlClient,
    screen: &'a Screen,
    console: Option<Console>,
    terminal: Option<Terminal>,
    /// The VM is being stopped: this terminal's next request forces it off.
    is_stopping: bool,
}

impl<'a> Attachment<'a> {
    /// Not connected to the console yet.
    pub fn new(name: &'a str, dir: &'a VmDir, control: ControlClient, screen: &'a Screen) -> Self {
        Self {
            name,
            dir,
            control,
            screen,
            console: None,
            terminal: None,
            is_stopping: false,
        }
    }

    /// Stays attached until the VM has ended or the terminal leaves it: once the VM has reached the
    /// phase `detach_at`; without one, shows the console, and forwards the input. A signal, also
    /// SIGHUP of a closed terminal, stops the VM.
    ///
    /// # Errors
    /// The VM could not be started, or was lost.
    pub async fn attend(
        mut self,
        detach_at: Option<RunPhase>,
        signals: &mut EndSignals,
    ) -> Result<AttachmentEnd, CtlError> {
        loop {
            tokio::select! {
                update = self.control.next() => {
                    if let Some(outcome) = self.handle(update?, detach_at).await? {
                        return Ok(outcome);
                    }
                }
                event = or_never(self.console.as_mut().map(Console::next)) => match event {
                    ConsoleEvent::Output(bytes) => self.screen.guest_wrote(&bytes),
                    ConsoleEvent::Escape => return Ok(self.detach().await),
                    ConsoleEvent::InputEnded => {}
                    // From here on Ctrl-C is a signal again.
                    ConsoleEvent::Closed => (self.console, self.terminal) = (None, None),
                },
                _ = signals.next() => self.stop().await,
            }
        }
    }

    /// Returns how the terminal leaves the VM, if it does.
    async fn handle(
        &mut self,
        update: Update,
        detach_at: Option<RunPhase>,
    ) -> Result<Option<AttachmentEnd>, CtlError> {
        self.screen.show(&update);
        match update {
            Update::Ended(failure) => {
                let _ = timeout(LAST_OUTPUT_TIMEOUT, self.show_last_output()).await;
                failure.iter().for_each(|text| self.screen.note(text));
                let code = u8::from(failure.is_some());
                return Ok(Some(AttachmentEnd::Ended(code.into())));
            }
            Update::Phase { phase } => {
                self.note_phase(phase);
                if detach_at == Some(phase) {
                    return Ok(Some(self.detach().await));
                }
            }
            Update::Console(true) if detach_at.is_none() => self.open_console().await?,
            _ => {}
        }
        Ok(None)
    }

    /// Shows what is still to come of a guest that has ended: its console is closed then.
    async fn show_last_output(&mut self) {
        while let Some(console) = &mut self.console
            && let ConsoleEvent::Output(bytes) = console.next().await
        {
            self.screen.guest_wrote(&bytes);
        }
    }

    /// Applies a phase to this terminal.
    fn note_phase(&mut self, phase: RunPhase) {
        self.is_stopping |= phase == RunPhase::ShutdownRequested;
        if phase == RunPhase::DomainRunning {
            let network = HostNetwork::load(self.dir).ok().flatten();
            for forward in network.iter().flat_map(HostNetwork::forwards) {
                self.screen.note(&forward.to_string());
            }
        }
    }

    /// Shuts the guest down; the second time forces it off.
    async fn stop(&mut self) {
        if std::mem::replace(&mut self.is_stopping, true) {
            self.control.request(ControlRequest::Force).await;
            return;
        }
        self.control.request(ControlRequest::Stop).await;
        self.screen
            .note("the guest is to shut down; Ctrl-C once more forces it off");
    }

    async fn open_console(&mut self) -> Result<(), CtlError> {
        let (name, socket) = (self.name, self.dir.path(CONSOLE_SOCKET));
        let mut console = Console::connect(&socket, self.screen.console()).await?;
        if is_terminal() {
            self.screen.note(&format!("the guest's console follows; Ctrl-] leaves it, and {name} runs on; launcherctl stop {name} ends it"));
        }
        self.terminal = Terminal::enter();
        if self.terminal.is_some() {
            console.read_input();
        }
        self.console = Some(console);
        Ok(())
    }

    async fn detach(&mut self) -> AttachmentEnd {
        self.control.request(ControlRequest::Detach).await;
        self.terminal = None;
        let name = self.name;
        let console = match self.dir.load_vmi().as_ref().is_ok_and(has_no_console) {
            true => String::new(),
            false => format!("launcherctl console {name} shows its console, "),
        };
        self.screen.note(&format!(
            "{name} runs on: {console}launcherctl stop {name} ends it"
        ));
        AttachmentEnd::Detached
    }
}

/// Waits for the event; forever without one.
async fn or_never<T>(event: Option<impl Future<Output = T>>) -> T {
    match event {
        Some(event) => event.await,
        None => std::future::pending().await,
    }
}
