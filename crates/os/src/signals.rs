//! Signals: what a parent leaves in its children, signals as events without a runtime, and those
//! that end a program.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use tokio::signal::unix::{self, SignalKind};

use crate::poll::poll_for;

/// Signals that ask a program to end.
const END: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Undoes what a parent can leave behind execve(2): lets every signal through again, and ends that
/// SIGCHLD is ignored. Signals that ask the program to end wait until it handles them
/// ([`EndSignals::listen`], [`SignalQueue::block`]) or calls [`release_end_signals`]. To be called
/// first, while the process has one thread: threads inherit the mask, children the mask and what is
/// ignored.
///
/// With SIGTERM blocked the pod can only be killed. With SIGCHLD blocked or ignored the end of a
/// child is not reported, and its status is lost: the monitor would wait for the launcher for ever,
/// and libvirt for QEMU.
pub fn reset_inherited() {
    if let Err(error) = SigSet::from_iter(END).thread_set_mask() {
        eprintln!("signals that the parent has blocked stay blocked: {error}");
    }
    // execve(2) resets a handler to the default. Nobody reads this one's flag.
    let handled = signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::default());
    if let Err(error) = handled {
        eprintln!("SIGCHLD stays ignored if the parent ignores it: {error}");
    }
}

/// Lets the signals through that ask a program to end, for one that they may end at any time.
pub fn release_end_signals() {
    if let Err(error) = SigSet::from_iter(END).thread_unblock() {
        eprintln!("signals that ask this program to end are not received: {error}");
    }
}

/// Signals that are queued instead of ending the process.
#[derive(Debug)]
pub struct SignalQueue(SignalFd);

impl SignalQueue {
    /// Blocks `signals`, and no others, and queues them from now on. To be called first, while the
    /// process has one thread.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn block(signals: &[Signal]) -> io::Result<Self> {
        let mask: SigSet = signals.iter().copied().collect();
        mask.thread_set_mask()?;
        Ok(Self(SignalFd::with_flags(
            &mask,
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?))
    }

    /// Whether one of them came; it is taken from the queue.
    #[must_use]
    pub fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }

    /// Waits for the next signal; none when the deadline is over.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next(&self, deadline: Option<Instant>) -> io::Result<Option<Signal>> {
        loop {
            if let Some(info) = self.0.read_signal()? {
                let number = i32::try_from(info.ssi_signo).unwrap_or_default();
                return Ok(Signal::try_from(number).ok());
            }
            let timeout =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !poll_for(&mut [PollFd::new(self, PollFlags::IN)], timeout)? {
                return Ok(None);
            }
        }
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// SIGTERM, SIGINT, SIGHUP and SIGQUIT, for a program with a tokio runtime. All of them ask it to
/// end.
#[derive(Debug)]
pub struct EndSignals([(&'static str, unix::Signal); 4]);

impl EndSignals {
    /// Listens from now on, so that none of them ends the process by itself any more.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        let on = |name, kind| unix::signal(kind).map(|signal| (name, signal));
        // Named as Go names them, and so KubeVirt's logs.
        let signals = [
            on("terminated", SignalKind::terminate())?,
            on("interrupt", SignalKind::interrupt())?,
            on("hangup", SignalKind::hangup())?,
            on("quit", SignalKind::quit())?,
        ];
        release_end_signals();
        Ok(Self(signals))
    }

    /// Waits for the next one, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        poll_fn(|context| {
            for (name, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*name);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal as Number, getpid, kill_process};

    #[tokio::test]
    async fn every_end_signal_has_its_name() {
        let mut signals = EndSignals::listen().unwrap();
        for (number, name) in [
            (Number::TERM, "terminated"),
            (Number::INT, "interrupt"),
            (Number::HUP, "hangup"),
            (Number::QUIT, "quit"),
        ] {
            kill_process(getpid(), number).unwrap();
            assert_eq!(signals.next().await, name);
        }
    }

    #[test]
    fn a_deadline_ends_the_wait_for_a_signal() {
        let signals = SignalQueue::block(&[Signal::SIGUSR2]).unwrap();
        assert_eq!(signals.next(Some(Instant::now())).unwrap(), None);
        nix::sys::signal::raise(Signal::SIGUSR2).unwrap();
        let deadline = crate::time::deadline(std::time::Duration::from_secs(60)).into_std();
        assert_eq!(signals.next(Some(deadline)).unwrap(), Some(Signal::SIGUSR2));
    }
}
