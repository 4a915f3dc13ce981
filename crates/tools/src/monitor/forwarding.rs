//! SIGTERM for the launcher, which may not handle it yet.

use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};

use os::procfs;

/// For a launcher that has just been started to install its handler for SIGTERM.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two checks of that.
const HANDLER_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A SIGTERM on its way to the launcher.
pub struct Forwarding {
    began: Instant,
}

impl Forwarding {
    /// It is to be sent from now on.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
        }
    }

    /// When to try again.
    pub fn next_attempt(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(HANDLER_CHECK_INTERVAL).unwrap_or(now)
    }

    /// Sends it, unless the launcher is about to install its handler: without one it would be killed, and the pod would
    /// have failed. False if it is still to be sent.
    pub fn attempt(&self, launcher: Pid) -> bool {
        let term = rustix::process::Signal::TERM;
        if self.began.elapsed() < HANDLER_TIMEOUT && !procfs::has_handler(launcher, term) {
            return false;
        }
        tracing::info!("signalling virt-launcher to shut down");
        if let Err(error) = kill_process(launcher, term) {
            tracing::error!(reason = %error, "can't signal virt-launcher to shut down");
        }
        true
    }
}
