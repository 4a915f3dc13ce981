//! poll(2) for programs without a runtime.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

/// Sleeps until one of them is ready, or `timeout` is over: false then.
///
/// # Errors
/// If the kernel has no memory left.
pub fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    // A stop and a continuation interrupt it.
    Ok(rustix::io::retry_on_intr(|| poll(fds, timeout.as_ref()))? > 0)
}
