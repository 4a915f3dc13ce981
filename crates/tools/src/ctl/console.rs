//! The guest's serial console on the terminal.

use std::io::{self, IsTerminal};
use std::path::Path;

use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::CtlError;

/// Ctrl-], the key that telnet and virsh use as well.
const ESCAPE: u8 = 0x1d;

/// The terminal in raw mode; dropping it brings back what was set before.
#[derive(Debug)]
pub struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Switches standard input to raw mode if it is a terminal.
    #[must_use]
    pub fn enter() -> Option<Self> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let before = termios::tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// What happened on the console.
#[derive(Debug)]
pub enum Happened {
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
pub enum Screen {
    /// Standard output.
    Output(tokio::io::Stdout),
    /// Standard error.
    Errors(tokio::io::Stderr),
}

impl Screen {
    /// Shows it as it is. That nobody looks any more is no reason to end the guest.
    async fn show(&mut self, bytes: &[u8]) {
        let stream: &mut (dyn AsyncWrite + Unpin + Send) = match self {
            Self::Output(stream) => stream,
            Self::Errors(stream) => stream,
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
    screen: Screen,
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
        screen: Screen,
    ) -> Result<Self, CtlError> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(CtlError::file("connect to the console at", socket))?;
        let (guest, to_guest) = stream.into_split();
        let input = interactive.then(tokio::io::stdin);
        Ok(Self {
            guest: Some(guest),
            to_guest,
            input,
            screen,
            from_guest_buffer: vec![0; 4096],
            input_buffer: [0; 256],
        })
    }

    /// Waits for the next thing to happen, passing bytes on. Safe to drop and call again.
    pub async fn next(&mut self) -> Happened {
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
                read = from_guest => return self.show(read.unwrap_or(0)).await,
                read = from_user => if let Some(happened) = self.type_in(read.unwrap_or(0)).await { return happened },
            }
        }
    }

    async fn show(&mut self, length: usize) -> Happened {
        if length == 0 {
            self.guest = None;
            return Happened::Closed;
        }
        let bytes = self
            .from_guest_buffer
            .get(..length)
            .unwrap_or_default()
            .to_vec();
        self.screen.show(&bytes).await;
        Happened::Output(bytes)
    }

    async fn type_in(&mut self, length: usize) -> Option<Happened> {
        if length == 0 {
            self.input = None;
            return Some(Happened::InputEnded);
        }
        let typed = self.input_buffer.get(..length).unwrap_or_default();
        let end = typed.iter().position(|&byte| byte == ESCAPE);
        let _ = self
            .to_guest
            .write_all(&typed[..end.unwrap_or(length)])
            .await;
        end.map(|_| Happened::Escape)
    }
}
