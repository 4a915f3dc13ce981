//! Shows how much of a file is written, for a person at a terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

use super::output::Format;
use super::size::human_size;

/// Interval of updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// A line on standard error, removed on drop.
#[derive(Debug)]
pub struct SizeProgress {
    is_shown: bool,
    next: Instant,
}

impl SizeProgress {
    /// Shown only on a terminal and as text.
    pub fn new(format: Format) -> Self {
        Self {
            is_shown: format == Format::Text && std::io::stderr().is_terminal(),
            next: Instant::now(),
        }
    }

    /// Shows the number of written bytes.
    pub fn show(&mut self, bytes: u64) {
        if self.is_shown && Instant::now() >= self.next {
            let _ = write!(std::io::stderr(), "\r{:>12}\x1b[K", human_size(bytes));
            self.next = os::time::deadline(UPDATE_INTERVAL);
        }
    }
}

impl Drop for SizeProgress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
