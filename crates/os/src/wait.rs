//! How a program without a runtime sleeps: until a signal, a change in a directory, or input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::inotify::DirChanges;
use crate::poll::poll_for;
use crate::signals::SignalQueue;

/// Sleeps until a signal, a change, input on `also` or the end of `timeout`.
///
/// # Errors
/// If the kernel has no memory left.
pub fn wait(
    signals: &SignalQueue,
    changes: &DirChanges,
    also: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let fds = [Some(signals.as_fd()), changes.as_fd(), also];
    let mut fds: Vec<_> = fds
        .into_iter()
        .flatten()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    poll_for(&mut fds, timeout).map(drop)
}

/// Sleeps until `out` takes some bytes, or has no reader left. False if a signal came first.
///
/// # Errors
/// If the kernel has no memory left.
pub fn wait_to_write(signals: &SignalQueue, out: BorrowedFd<'_>) -> io::Result<bool> {
    let out = PollFd::from_borrowed_fd(out, PollFlags::OUT);
    let mut fds = [PollFd::new(signals, PollFlags::IN), out];
    poll_for(&mut fds, None)?;
    let [signals, _] = fds;
    Ok(signals.revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use nix::sys::signal::Signal;
    use rustix::fs::inotify::WatchFlags;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn a_change_and_input_end_the_wait() {
        let signals = SignalQueue::block(&[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut changes = DirChanges::new();
        changes.watch_only(&[(dir.path(), WatchFlags::empty())]);
        std::fs::write(dir.path().join("a"), "").unwrap();
        wait(&signals, &changes, None, LONG).unwrap();
        changes.watch_only(&[(Path::new("/"), WatchFlags::empty())]);
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        wait(&signals, &changes, Some(read.as_fd()), LONG).unwrap();
        wait(&signals, &changes, None, Some(Duration::from_millis(1))).unwrap();
    }

    #[test]
    fn a_signal_ends_the_wait_to_write() {
        // `raise` reaches only the thread that calls it.
        let signals = SignalQueue::block(&[Signal::SIGUSR1]).unwrap();
        let (_read, write) = rustix::pipe::pipe().unwrap();
        assert!(!signals.came() && wait_to_write(&signals, write.as_fd()).unwrap());
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        assert!(!wait_to_write(&signals, write.as_fd()).unwrap());
        wait(&signals, &DirChanges::new(), None, None).unwrap();
        assert!(signals.came() && !signals.came());
    }
}
