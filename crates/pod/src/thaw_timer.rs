//! Schedules the thaw for the end of a freeze (`unfreezeTimeoutSeconds`). A file keeps the deadline
//! for the next launcher of this pod.
//!
//! The deadline is a time of the machine's monotonic clock: both launchers run on one machine, and
//! its reboot ends the guest too. With the wall clock, setting it back would keep the guest frozen.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use super::PodError;
use os::file_error::FileError;

/// Start of the file's line; seconds since the machine's boot follow.
const CLOCK: &str = "monotonic ";
/// Enough for any decimal number of seconds.
const MAX_FILE_BYTES: u64 = 64;

/// When to thaw the guest's file systems, if they are frozen.
pub struct ThawTimer {
    path: PathBuf,
    /// The time of the thaw, on the clock of [`now`].
    deadline: watch::Sender<Option<Duration>>,
}

impl ThawTimer {
    /// Loads an earlier launcher's deadline.
    #[must_use]
    pub fn load(path: PathBuf) -> Self {
        let deadline = match os::small_file::read(&path, MAX_FILE_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            // An unreadable file means that there was a freeze. It is thawed at once.
            read => Some(read.ok().and_then(|line| parse(&line)).unwrap_or_default()),
        };
        Self {
            path,
            deadline: watch::Sender::new(deadline),
        }
    }

    /// Schedules the thaw after this time, or cancels it.
    ///
    /// # Errors
    /// The next launcher would not know of it.
    pub fn set(&self, after: Option<Duration>) -> Result<(), PodError> {
        let deadline = after.map(|after| now().saturating_add(after));
        let written = match deadline {
            Some(deadline) => self.write(deadline),
            None => os::small_file::remove(&self.path),
        };
        self.deadline.send_replace(deadline);
        let kept = written.map_err(FileError::on("keep the end of the freeze in", &self.path));
        Ok(kept?)
    }

    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Option<Duration>> {
        self.deadline.subscribe()
    }

    fn write(&self, deadline: Duration) -> std::io::Result<()> {
        let line = format!("{CLOCK}{}\n", deadline.as_secs());
        os::small_file::replace(&self.path, line.as_bytes())
    }

    /// Time until the thaw; `None` if none is scheduled.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = (*self.deadline.borrow())?;
        Some(deadline.saturating_sub(now()))
    }
}

/// Parses the file's line.
fn parse(line: &[u8]) -> Option<Duration> {
    let seconds = str::from_utf8(line).ok()?.strip_prefix(CLOCK)?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Time since the machine's boot, independent of the wall clock.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The kernel's value is never negative.
    now.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_launcher_knows_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("thaw-deadline");
        let timer = ThawTimer::load(path.clone());
        assert_eq!(timer.remaining(), None);
        timer.set(Some(Duration::from_secs(300))).unwrap();
        let next = ThawTimer::load(path.clone());
        let remaining = next.remaining().unwrap();
        assert!(remaining <= Duration::from_secs(300), "{remaining:?}");
        assert!(remaining > Duration::from_secs(200), "{remaining:?}");
        next.set(None).unwrap();
        next.set(None).unwrap();
        assert_eq!(ThawTimer::load(path).remaining(), None);
    }

    #[test]
    fn a_deadline_that_cannot_be_read_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("thaw-deadline");
        // The last one is a wall-clock time.
        for text in ["soon", "monotonic", "monotonic -1", "", "99999999999"] {
            std::fs::write(&path, text).unwrap();
            let remaining = ThawTimer::load(path.clone()).remaining();
            assert_eq!(remaining, Some(Duration::ZERO), "{text:?}");
        }
        std::fs::write(&path, format!("{CLOCK}{}", u64::MAX)).unwrap();
        assert!(ThawTimer::load(path).remaining().is_some());
    }

    #[test]
    fn a_deadline_that_cannot_be_written_is_an_error() {
        let timer = ThawTimer::load("/nonexistent/thaw-deadline".into());
        let error = timer.set(Some(Duration::ZERO)).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
