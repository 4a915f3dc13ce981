//! Bounds on what a guest can make the launcher do.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Packets that a server reads in a second. A client sends one every few seconds. On a bridged
/// network the server also hears other clients.
const MAX_PACKETS_PER_SECOND: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// Lines that a server logs in [`LOG_INTERVAL`].
const MAX_LOG_LINES: u32 = 10;
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts events of an interval of time.
#[derive(Debug)]
struct Window {
    end: Instant,
    count: u32,
}

impl Window {
    fn new() -> Self {
        Self {
            end: Instant::now(),
            count: 0,
        }
    }

    /// Begins a new interval if the last one is over, and returns the last one's count.
    fn renew(&mut self, interval: Duration) -> Option<u32> {
        let now = Instant::now();
        (now >= self.end).then(|| {
            self.end = now.checked_add(interval).unwrap_or(now);
            std::mem::take(&mut self.count)
        })
    }
}

/// Slows a reader down that gets too many packets: it waits, and the socket's buffer drops what
/// does not fit.
#[derive(Debug)]
pub(crate) struct Pace(Window);

impl Pace {
    pub fn new() -> Self {
        Self(Window::new())
    }

    /// Waits until another packet may be read.
    pub async fn wait(&mut self) {
        if self.0.count >= MAX_PACKETS_PER_SECOND {
            sleep_until(self.0.end).await;
        }
        self.0.renew(SECOND);
        self.0.count += 1;
    }
}

/// Allows for some lines in an interval.
#[derive(Debug)]
pub(crate) struct LogLimit {
    window: Window,
    suppressed: u32,
}

impl LogLimit {
    pub fn new() -> Self {
        Self {
            window: Window::new(),
            suppressed: 0,
        }
    }

    /// Whether a line may be written, and how many were not since the last one.
    pub fn allow(&mut self) -> Option<u32> {
        self.window.renew(LOG_INTERVAL);
        if self.window.count >= MAX_LOG_LINES {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.window.count += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    // D-net-11 (docs/differences.md).
    async fn a_flood_is_read_slowly() {
        let (mut pace, start) = (Pace::new(), Instant::now());
        for _ in 0..MAX_PACKETS_PER_SECOND {
            pace.wait().await;
        }
        assert_eq!(
            start.elapsed(),
            Duration::ZERO,
            "this many are read at once"
        );
        for _ in 0..MAX_PACKETS_PER_SECOND * 2 {
            pace.wait().await;
        }
        assert!(start.elapsed() >= 2 * SECOND, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted() {
        let mut limit = LogLimit::new();
        for _ in 0..MAX_LOG_LINES {
            assert_eq!(limit.allow(), Some(0));
        }
        assert_eq!((limit.allow(), limit.allow()), (None, None));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!((limit.allow(), limit.allow()), (Some(2), Some(0)));
    }
}
