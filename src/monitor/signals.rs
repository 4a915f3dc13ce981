//! Signals as things to read, one after the other: none is lost between looking and waiting.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// SIGCHLD, and those that ask for the end.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// From now on they wait to be read. To be called before anything is started; children do not inherit it, for
    /// `std::process` empties their signal mask.
    ///
    /// # Errors
    /// If the kernel has no signalfd(2) for us.
    pub fn block() -> io::Result<Self> {
        let set: SigSet = [Number::SIGCHLD, Number::SIGTERM, Number::SIGINT, Number::SIGQUIT].into_iter().collect();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next signal: [`Signal::CHILD`], or [`Signal::TERM`] for all others. None when the deadline is over.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn next(&self, deadline: Option<Instant>) -> io::Result<Option<Signal>> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                let child = i32::try_from(info.ssi_signo).is_ok_and(|number| number == Number::SIGCHLD as i32);
                return Ok(Some(if child { Signal::CHILD } else { Signal::TERM }));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A time that is out of its range would be longer than anybody waits.
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut wanted = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            match poll(&mut wanted, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
