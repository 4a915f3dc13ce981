//! The signals that ask this program to stop: Ctrl-C, SIGTERM, or a terminal that is closed.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught, because they would otherwise end this program and leave behind what it has started.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// From now on the signals are queued for [`StopSignals::next`].
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
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
