//! Connects a terminal to the guest's serial console.

use std::io::{self, IsTerminal};
use std::path::Path;

use rustix::process::getpgrp;
use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::console_hub::connect;
use crate::files::FileError;

/// Ctrl-], as in telnet, virsh and virtctl.
const ESCAPE_KEY: u8 = 0x1d;
/// SIGCONT on Linux; tokio has no name for it.
const SIGCONT: i32 = 18;

/// Whether standard input and output are terminals.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal, in raw mode while this program is the terminal's foreground job. A background job
/// (`run … &`) that changes the terminal's mode or reads from it would be stopped by SIGTTOU or
/// SIGTTIN.
#[derive(Debug)]
pub struct Terminal {
    raw: Option<RawMode>,
    continued: Signal,
}

impl Terminal {
    /// Enters raw mode, now or once the job is in the foreground; `None` without a terminal.
    ///
    /// # Errors
    /// SIGCONT cannot be handled.
    pub fn enter() -> io::Result<Option<Self>> {
        if !is_terminal() {
            return Ok(None);
        }
        Ok(Some(Self {
            raw: RawMode::enter(),
            continued: signal(SignalKind::from_raw(SIGCONT))?,
        }))
    }

    /// Whether this program gets what the user types.
    pub fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Waits for the job to be continued, as by `fg`, and enters raw mode again if it is then in
    /// the foreground.
    async fn continued(&mut self) {
        self.continued.recv().await;
        match &self.raw {
            Some(mode) if is_in_foreground() => drop(mode.apply()),
            Some(_) => {}
            None => self.raw = RawMode::enter(),
        }
    }
}

/// Waits for the job to be continued; forever without a terminal.
pub async fn continued(terminal: &mut Option<Terminal>) {
    match terminal {
        Some(terminal) => terminal.continued().await,
        None => std::future::pending().await,
    }
}

/// Restores the former mode on drop.
#[derive(Debug)]
struct RawMode {
    former: Termios,
}

impl RawMode {
    fn enter() -> Option<Self> {
        if !is_in_foreground() {
            return None;
        }
        let former = termios::tcgetattr(io::stdin()).ok()?;
        let mode = Self { former };
        mode.apply().ok()?;
        Some(mode)
    }

    fn apply(&self) -> rustix::io::Result<()> {
        let mut raw = self.former.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if is_in_foreground() {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.former);
        }
    }
}

fn is_in_foreground() -> bool {
    termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// An event on the console.
#[derive(Debug)]
pub enum ConsoleEvent {
    /// The guest's output, already shown.
    Output(Vec<u8>),
    /// The user pressed Ctrl-].
    Escape,
    /// Standard input ended; the guest continues.
    InputEnded,
    /// The guest's side of the console is closed.
    Closed,
}

/// Where to show the guest's output.
pub type ConsoleOutput = Box<dyn AsyncWrite + Send + Unpin>;

/// Connects standard input and output to the guest's serial console.
pub struct Console {
    guest: Option<OwnedReadHalf>,
    to_guest: OwnedWriteHalf,
    input: Option<tokio::io::Stdin>,
    output: ConsoleOutput,
}

impl Console {
    /// Connects to the console's socket.
    ///
    /// # Errors
    /// The socket accepts no connection.
    pub async fn connect(socket: &Path, output: ConsoleOutput) -> Result<Self, FileError> {
        let (guest, to_guest) = connect(socket).await?.into_split();
        Ok(Self {
            guest: Some(guest),
            to_guest,
            input: None,
            output,
        })
    }

    /// Starts passing standard input to the guest.
    pub fn read_input(&mut self) {
        self.input.get_or_insert_with(tokio::io::stdin);
    }

    /// Transfers bytes until the next event. Cancel safe.
    pub async fn next(&mut self) -> ConsoleEvent {
        loop {
            let Some(guest) = &mut self.guest else {
                return std::future::pending().await;
            };
            let (mut written, mut typed) = (Vec::with_capacity(4096), Vec::with_capacity(256));
            tokio::select! {
                _ = guest.read_buf(&mut written) => {
                    if written.is_empty() {
                        self.guest = None;
                        return ConsoleEvent::Closed;
                    }
                    // A closed output does not end the guest.
                    let _ = self.output.write_all(&written).await;
                    let _ = self.output.flush().await;
                    return ConsoleEvent::Output(written);
                }
                Some(_) = async { Some(self.input.as_mut()?.read_buf(&mut typed).await) } => {
                    if typed.is_empty() {
                        self.input = None;
                        return ConsoleEvent::InputEnded;
                    }
                    let mut parts = typed.splitn(2, |&byte| byte == ESCAPE_KEY);
                    let before = parts.next().unwrap_or_default();
                    let _ = self.to_guest.write_all(before).await;
                    if parts.next().is_some() {
                        return ConsoleEvent::Escape;
                    }
                }
            }
        }
    }
}
