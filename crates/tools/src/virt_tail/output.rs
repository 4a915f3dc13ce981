//! Standard output, written so that a signal always ends a wait for its reader.

use std::io;
use std::os::fd::AsFd;

use os::signals::SignalQueue;
use os::wait::wait_to_write;

/// A pipe that poll(2) reports as writable accepts this many bytes without blocking (`PIPE_BUF`).
const MAX_WRITE: usize = 4096;

/// Why printing stopped.
#[derive(Debug)]
pub enum Stop {
    Signal,
    /// A write failed.
    Failed(io::Error),
}

/// Standard output and the signals that end a wait for its reader.
#[derive(Debug)]
pub struct Output<'a> {
    signals: &'a SignalQueue,
    out: io::Stdout,
}

impl<'a> Output<'a> {
    /// Any of `signals` ends a wait.
    pub fn new(signals: &'a SignalQueue) -> Self {
        Self {
            signals,
            out: io::stdout(),
        }
    }

    /// Prints `text` as it is.
    ///
    /// # Errors
    /// A signal comes first, or nobody reads.
    // D-tool-3 (docs/differences.md).
    pub fn print(&mut self, text: &[u8]) -> Result<(), Stop> {
        for piece in text.chunks(MAX_WRITE) {
            let mut rest = piece;
            while !rest.is_empty() {
                if !wait_to_write(self.signals, self.out.as_fd()).map_err(Stop::Failed)? {
                    return Err(Stop::Signal);
                }
                // Not through the standard library's buffer, which would write when it is full.
                let written = match rustix::io::write(&self.out, rest) {
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
                    other => other.map_err(|error| Stop::Failed(error.into()))?,
                };
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        Ok(())
    }
}
