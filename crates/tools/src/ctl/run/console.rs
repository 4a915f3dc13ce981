//! The guest's serial console on the terminal.

use std::io::{self, IsTerminal};
use std::path::Path;

use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::ctl::files::FileError;

/// Ctrl-], as in telnet and virsh.
const ESCAPE_KEY: u8 = 0x1d;

/// The terminal in raw mode; dropping it restores the former mode.
#[derive(Debug)]
pub struct RawTerminal {
    former: Termios,
}

impl RawTerminal {
    /// Switches standard input to raw mode if it is a terminal.
    #[must_use]
    pub fn enter() -> Option<Self> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let former = termios::tcgetattr(io::stdin()).ok()?;
        let mut raw = former.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { former })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.former);
    }
}

/// Something that happened on the console.
#[derive(Debug)]
pub enum ConsoleEvent {
    /// The guest wrote; the bytes have been shown.
    Output(Vec<u8>),
    /// The user pressed Ctrl-].
    Escape,
    /// Standard input ended; the guest goes on.
    InputEnded,
    /// The guest's side of the console is closed.
    Closed,
}

/// Where the guest's output is shown.
#[derive(Debug)]
pub enum ConsoleOutput {
    /// Standard output.
    Stdout(tokio::io::Stdout),
    /// Standard error.
    Stderr(tokio::io::Stderr),
}

impl ConsoleOutput {
    /// Writes it unchanged. A closed output does not end the guest.
    async fn write(&mut self, bytes: &[u8]) {
        let stream: &mut (dyn AsyncWrite + Unpin + Send) = match self {
            Self::Stdout(stream) => stream,
            Self::Stderr(stream) => stream,
        };
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
    }
}

/// A connection to the guest's serial console, with standard input and output at the other end.
#[derive(Debug)]
pub struct Console {
    guest: Option<OwnedReadHalf>,
    to_guest: OwnedWriteHalf,
    input: Option<tokio::io::Stdin>,
    output: ConsoleOutput,
    from_guest_buffer: Vec<u8>,
    input_buffer: [u8; 256],
}

impl Console {
    /// Connects to the console's socket; `interactive` passes standard input on to the guest.
    ///
    /// # Errors
    /// If the socket does not accept.
    pub async fn connect(
        socket: &Path,
        interactive: bool,
        output: ConsoleOutput,
    ) -> Result<Self, FileError> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(FileError::on("connect to the console at", socket))?;
        let (guest, to_guest) = stream.into_split();
        let input = interactive.then(tokio::io::stdin);
        Ok(Self {
            guest: Some(guest),
            to_guest,
            input,
            output,
            from_guest_buffer: vec![0; 4096],
            input_buffer: [0; 256],
        })
    }

    /// Passes bytes on until the next event. Safe to drop and call again.
    pub async fn next(&mut self) -> ConsoleEvent {
        loop {
            let Some(guest) = &mut self.guest else {
                return std::future::pending().await;
            };
            let from_guest = guest.read(&mut self.from_guest_buffer);
            let from_user = async {
                match &mut self.input {
                    Some(input) => input.read(&mut self.input_buffer).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = from_guest => return self.forward_output(read.unwrap_or(0)).await,
                read = from_user => if let Some(event) = self.forward_input(read.unwrap_or(0)).await { return event },
            }
        }
    }

    async fn forward_output(&mut self, length: usize) -> ConsoleEvent {
        if length == 0 {
            self.guest = None;
            return ConsoleEvent::Closed;
        }
        let bytes = self
            .from_guest_buffer
            .get(..length)
            .unwrap_or_default()
            .to_vec();
        self.output.write(&bytes).await;
        ConsoleEvent::Output(bytes)
    }

    async fn forward_input(&mut self, length: usize) -> Option<ConsoleEvent> {
        if length == 0 {
            self.input = None;
            return Some(ConsoleEvent::InputEnded);
        }
        let typed = self.input_buffer.get(..length).unwrap_or_default();
        let mut parts = typed.splitn(2, |&byte| byte == ESCAPE_KEY);
        let _ = self
            .to_guest
            .write_all(parts.next().unwrap_or_default())
            .await;
        parts.next().map(|_| ConsoleEvent::Escape)
    }
}
