//! The user's wish that this ends: Ctrl-C, SIGTERM, or the terminal that goes away.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that would otherwise end this program and leave behind what it has started.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Stop {
    /// From now on the signals are kept for [`Stop::asked`].
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Safe to drop and call again.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
