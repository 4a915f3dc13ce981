//! Waiting in one poll(2) for signals and for changes in a directory, without a runtime: for the tools whose
//! containers get next to no CPU. While nothing happens they sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, WatchFlags};

/// How often to look where the kernel can't tell of changes.
const LOOK: Duration = Duration::from_secs(1);

/// Signals that are waited for instead of ending the process.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Holds `signals` back from now on. To be called first, while the process has one thread.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn hold(signals: &[Signal]) -> io::Result<Self> {
        let mask: SigSet = signals.iter().copied().collect();
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(
            &mask,
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?))
    }

    /// Whether one of them has come since the last look.
    #[must_use]
    pub fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }

    /// The next signal; none when the deadline is over.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn next(&self, deadline: Option<Instant>) -> io::Result<Option<Signal>> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                return Ok(i32::try_from(info.ssi_signo)
                    .ok()
                    .and_then(|number| Signal::try_from(number).ok()));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            poll_for(&mut [PollFd::new(self, PollFlags::IN)], left)?;
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Changes in some directories. Where the kernel has no watch left, or a directory must not be read, it is time to look
/// each second: a user has few watches (128 by default) for all the pods of a node.
#[derive(Debug)]
pub struct Changes {
    kernel: Option<OwnedFd>,
    watches: Vec<i32>,
    complete: bool,
}

impl Changes {
    /// Of no directory yet.
    #[must_use]
    pub fn new() -> Self {
        let kernel =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).ok();
        Self {
            kernel,
            watches: Vec::new(),
            complete: false,
        }
    }

    /// Forgets what has changed until now, and from now on watches `directories` instead of those before: for what comes
    /// and goes there, and for more that stands beside each. To be followed by a look, and that by a wait. The same
    /// directories again cost little.
    pub fn of(&mut self, directories: &[(&Path, WatchFlags)]) {
        use WatchFlags as On;
        let itself = On::DELETE_SELF | On::MOVE_SELF | On::ONLYDIR;
        let names = On::CREATE | On::MOVED_TO | On::DELETE | On::MOVED_FROM;
        let Some(kernel) = &self.kernel else { return };
        forget(kernel);
        let add = |(directory, more): &(&Path, WatchFlags)| {
            inotify::add_watch(kernel, *directory, itself | names | *more).ok()
        };
        let watches: Vec<i32> = directories.iter().filter_map(add).collect();
        for before in self
            .watches
            .iter()
            .filter(|before| !watches.contains(before))
        {
            // The kernel has removed that of a directory that is gone.
            let _ = inotify::remove_watch(kernel, *before);
        }
        self.complete = watches.len() == directories.len();
        self.watches = watches;
    }

    /// How long to wait at most before the next look.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        (!self.complete).then_some(LOOK)
    }
}

fn forget(kernel: &OwnedFd) {
    let mut buffer = [0_u8; 4096];
    while matches!(rustix::io::read(kernel, &mut buffer), Ok(1..)) {}
}

impl Default for Changes {
    fn default() -> Self {
        Self::new()
    }
}

/// Sleeps until a signal, a change, input on `also` or the end of `patience`.
///
/// # Errors
/// If the kernel has no memory left.
pub fn wait(
    signals: &Signals,
    changes: &Changes,
    also: Option<BorrowedFd<'_>>,
    patience: Option<Duration>,
) -> io::Result<()> {
    let kernel = changes.kernel.as_ref().map(AsFd::as_fd);
    let mut fds: Vec<_> = [Some(signals.as_fd()), kernel, also]
        .into_iter()
        .flatten()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    poll_for(&mut fds, patience)
}

/// Sleeps until `out` takes some bytes, or has nobody left to take them. False if a signal came first.
///
/// # Errors
/// If the kernel has no memory left.
pub fn wait_to_write(signals: &Signals, out: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(signals, PollFlags::IN),
        PollFd::from_borrowed_fd(out, PollFlags::OUT),
    ];
    poll_for(&mut fds, None)?;
    Ok(fds[0].revents().is_empty())
}

fn poll_for(fds: &mut [PollFd<'_>], patience: Option<Duration>) -> io::Result<()> {
    let timeout = patience.and_then(|time| Timespec::try_from(time).ok());
    // Interrupted by a stop and a continuation.
    Ok(rustix::io::retry_on_intr(|| poll(fds, timeout.as_ref())).map(drop)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    fn no_signals() -> Signals {
        Signals::hold(&[]).unwrap()
    }

    #[test]
    fn what_comes_into_the_directory_ends_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = Changes::new();
        changes.of(&[(dir.path(), WatchFlags::empty())]);
        assert_eq!(changes.patience(), None);
        std::fs::write(dir.path().join("a"), "").unwrap();
        wait(&no_signals(), &changes, None, LONG).unwrap();
        changes.of(&[(dir.path(), WatchFlags::empty())]);
        std::fs::remove_dir_all(dir.path()).unwrap();
        wait(&no_signals(), &changes, None, LONG).unwrap();
    }

    #[test]
    fn a_directory_that_took_the_place_of_another_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let mut changes = Changes::new();
        for _ in 0..3 {
            std::fs::create_dir(&place).unwrap();
            changes.of(&[(place.as_path(), WatchFlags::empty())]);
            std::fs::rename(&place, dir.path().join("away")).unwrap();
            std::fs::create_dir(&place).unwrap();
            changes.of(&[(place.as_path(), WatchFlags::empty())]);
            std::fs::write(place.join("a"), "").unwrap();
            wait(&no_signals(), &changes, None, LONG).unwrap();
            std::fs::remove_dir_all(&place).unwrap();
            std::fs::remove_dir_all(dir.path().join("away")).unwrap();
        }
    }

    #[test]
    fn what_has_been_looked_at_ends_no_wait_and_what_follows_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = Changes::new();
        changes.of(&[(dir.path(), WatchFlags::empty())]);
        std::fs::write(dir.path().join("a"), "").unwrap();
        changes.of(&[(dir.path(), WatchFlags::empty())]);
        let kernel = changes.kernel.as_ref().unwrap();
        assert_eq!(
            rustix::io::read(kernel, &mut [0; 64]),
            Err(rustix::io::Errno::AGAIN)
        );
        std::fs::remove_file(dir.path().join("a")).unwrap();
        wait(&no_signals(), &changes, None, LONG).unwrap();
    }

    #[test]
    fn without_a_watch_it_is_time_to_look() {
        let mut changes = Changes {
            kernel: None,
            watches: Vec::new(),
            complete: false,
        };
        changes.of(&[(Path::new("/"), WatchFlags::empty())]);
        assert_eq!(changes.patience(), Some(LOOK));
        let mut changes = Changes::new();
        changes.of(&[(Path::new("/nonexistent"), WatchFlags::empty())]);
        assert_eq!(changes.patience(), Some(LOOK));
        wait(
            &no_signals(),
            &changes,
            None,
            Some(Duration::from_millis(1)),
        )
        .unwrap();
    }

    #[test]
    fn a_signal_is_seen_once_and_keeps_from_writing() {
        // `raise` reaches only the thread that calls it.
        let signals = Signals::hold(&[Signal::SIGUSR1]).unwrap();
        let (_read, write) = rustix::pipe::pipe().unwrap();
        assert!(!signals.came() && wait_to_write(&signals, write.as_fd()).unwrap());
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        assert!(!wait_to_write(&signals, write.as_fd()).unwrap());
        wait(
            &signals,
            &Changes {
                kernel: None,
                watches: Vec::new(),
                complete: false,
            },
            None,
            None,
        )
        .unwrap();
        assert!(signals.came() && !signals.came());
    }
}
