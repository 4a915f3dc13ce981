//! Standard output, written so that a signal always ends the wait for its reader.

use std::io;
use std::os::fd::AsFd;

use os::signals::SignalQueue;
use os::wait::wait_to_write;

/// A pipe that poll(2) calls writable takes as much without blocking (`PIPE_BUF`).
const MAX_WRITE: usize = 4096;

/// Why no more lines are printed.
#[derive(Debug)]
pub enum Stop {
    /// A signal asked for it.
    Signal,
    /// The kernel or the reader refuses.
    Failed(io::Error),
}

/// Standard output, and the signals that end a wait for its reader.
#[derive(Debug)]
pub struct Output<'a> {
    signals: &'a SignalQueue,
    out: io::Stdout,
}

impl<'a> Output<'a> {
    /// Ends at any of `signals`.
    pub fn new(signals: &'a SignalQueue) -> Self {
        Self {
            signals,
            out: io::stdout(),
        }
    }

    /// Prints `text` as it is.
    ///
    /// # Errors
    /// If a signal comes first, or nobody reads.
    // D-tool-3 (docs/differences.md).
    pub fn print(&mut self, text: &[u8]) -> Result<(), Stop> {
        for piece in text.chunks(MAX_WRITE) {
            let mut rest = piece;
            while !rest.is_empty() {
                if !wait_to_write(self.signals, self.out.as_fd()).map_err(Stop::Failed)? {
                    return Err(Stop::Signal);
                }
                // Past the buffer of the standard library, which would write when it is full.
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
