//! A process that is not a child, held by a descriptor: its end is an event, and its number can't become another's.

use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::unix::pipe;

/// A process that runs, or did.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// tokio's safe way to wait for a descriptor that is neither a socket nor really a pipe.
    fd: pipe::Receiver,
}

impl Process {
    /// The process with this number now.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(pid: Pid) -> io::Result<Self> {
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self {
            pid,
            fd: pipe::Receiver::from_owned_fd_unchecked(fd)?,
        })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its command line: what is read while the descriptor is open is what it stands for.
    ///
    /// # Errors
    /// If it is gone.
    pub fn command(&self) -> io::Result<Vec<String>> {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid()))?;
        let line = String::from_utf8_lossy(&line);
        Ok(line.split_terminator('\0').map(str::to_owned).collect())
    }

    /// Waits for its end; a zombie has ended.
    pub async fn gone(&self) {
        // A descriptor that can't be waited for any more belongs to no process any more.
        drop(self.fd.readable().await);
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it is gone, or not ours to signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }
}
