//! Sizes and amounts for people; how much of a file is written.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

use super::output::Format;

/// Interval of updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// A size in the largest unit with a value of at least 1, with a decimal unless it is whole.
pub fn human_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// An amount of bytes for people.
pub fn bytes(mut amount: f64) -> String {
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB"] {
        if amount >= 1024.0 {
            (amount, unit) = (amount / 1024.0, larger);
        }
    }
    format!("{amount:.1} {unit}")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let short = [0, 1023, 1024, 1536, 64 << 20, (64 << 20) + 1, 1 << 40].map(human_size);
        assert_eq!(
            short,
            [
                "0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "64 MiB", "1 TiB"
            ]
        );
    }
}
