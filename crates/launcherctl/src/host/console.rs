//! Connects a terminal to the guest's serial console.

use std::io::{self, Cursor, IsTerminal};
use std::path::Path;

use rustix::process::getpgrp;
use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::console_hub::connect;
use crate::files::FileError;

/// Ctrl-], as in telnet, virsh and virtctl.
const ESCAPE_KEY: u8 = 0x1d;

/// Whether standard input and output are terminals.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal in raw mode; the former mode is restored on drop.
#[derive(Debug)]
pub struct Terminal {
    former: Termios,
}

impl Terminal {
    /// Enters raw mode; `None` without a terminal, and for a background job (`run … &`), which
    /// would be stopped by SIGTTOU or SIGTTIN.
    pub fn enter() -> Option<Self> {
        let is_in_foreground =
            is_terminal() && termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        let former = termios::tcgetattr(io::stdin()).ok()?;
        let mut raw = former.clone();
        raw.make_raw();
        let entered =
            is_in_foreground && termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).is_ok();
        // Lazily: its drop sets the mode.
        entered.then(|| Self { former })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.former);
    }
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
    guest: OwnedReadHalf,
    to_guest: OwnedWriteHalf,
    input: Option<tokio::io::Stdin>,
    output: ConsoleOutput,
    /// The guest's output that is not shown yet, and the user's input that is not sent yet. They
    /// outlive a call of [`Console::next`] that is dropped half-way.
    written: Cursor<Vec<u8>>,
    typed: Cursor<Vec<u8>>,
    /// The user has pressed the escape key after `typed`.
    has_escaped: bool,
}

impl Console {
    /// Connects to the console's socket.
    ///
    /// # Errors
    /// The socket accepts no connection.
    pub async fn connect(socket: &Path, output: ConsoleOutput) -> Result<Self, FileError> {
        let (guest, to_guest) = connect(socket).await?.into_split();
        Ok(Self {
            guest,
            to_guest,
            input: None,
            output,
            written: Cursor::default(),
            typed: Cursor::default(),
            has_escaped: false,
        })
    }

    /// Starts passing standard input to the guest.
    pub fn read_input(&mut self) {
        self.input.get_or_insert_with(tokio::io::stdin);
    }

    /// Transfers bytes until the next event. Cancel safe.
    pub async fn next(&mut self) -> ConsoleEvent {
        loop {
            if !self.written.get_ref().is_empty() {
                // A closed output does not end the guest.
                let _ = self.output.write_all_buf(&mut self.written).await;
                let _ = self.output.flush().await;
                return ConsoleEvent::Output(std::mem::take(&mut self.written).into_inner());
            }
            if !self.typed.get_ref().is_empty() {
                let _ = self.to_guest.write_all_buf(&mut self.typed).await;
                self.typed = Cursor::default();
            }
            if self.has_escaped {
                return ConsoleEvent::Escape;
            }
            let (mut written, mut typed) = (Vec::with_capacity(4096), Vec::with_capacity(256));
            tokio::select! {
                _ = self.guest.read_buf(&mut written) => {
                    if written.is_empty() {
                        return ConsoleEvent::Closed;
                    }
                    self.written = Cursor::new(written);
                }
                Some(_) = async { Some(self.input.as_mut()?.read_buf(&mut typed).await) } => {
                    if typed.is_empty() {
                        self.input = None;
                        return ConsoleEvent::InputEnded;
                    }
                    if let Some(at) = typed.iter().position(|&byte| byte == ESCAPE_KEY) {
                        typed.truncate(at);
                        self.has_escaped = true;
                    }
                    self.typed = Cursor::new(typed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_caller_that_turns_to_something_else_loses_nothing() {
        const TEXT: &str = "virt-launcher test guest is up";
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("console.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let (output, mut screen) = tokio::io::duplex(1);
        let mut console = Console::connect(&socket, Box::new(output)).await.unwrap();
        let (mut guest, _) = listener.accept().await.unwrap();
        guest.write_all(TEXT.as_bytes()).await.unwrap();
        let mut shown = Vec::new();
        let all = async {
            while shown.len() < TEXT.len() {
                let mut byte = Vec::with_capacity(1);
                tokio::select! {
                    _ = screen.read_buf(&mut byte) => shown.extend(byte),
                    _ = console.next() => {}
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), all).await;
        assert_eq!(String::from_utf8_lossy(&shown), TEXT);
    }
}
