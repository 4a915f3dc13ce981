//! Processes that are not children, and orphans.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper,
};
use tokio::net::unix::pipe;

/// A variable for the environment of a program that stays: glibc's malloc then caches no freed
/// memory (tcache, fastbins). A cached chunk is not merged with free memory beside it, and the heap
/// cannot shrink below the highest one.
pub const MALLOC_WITHOUT_CACHES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0",
);

/// Orphans among this process's descendants become its children (PR_SET_CHILD_SUBREAPER), as they
/// become process 1's.
///
/// # Errors
/// If the kernel refuses.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A process that runs, or did, held by a descriptor: its end is an event, and its number cannot
/// become another's.
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
        Self::of(pid, pidfd_open(pid, PidfdFlags::empty())?)
    }

    /// The process of this descriptor, which has this number.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn of(pid: Pid, descriptor: OwnedFd) -> io::Result<Self> {
        let fd = pipe::Receiver::from_owned_fd_unchecked(descriptor)?;
        Ok(Self { pid, fd })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its command line, argument by argument: what is read while the descriptor is open is what it
    /// stands for.
    ///
    /// # Errors
    /// If it has ended.
    pub fn arguments(&self) -> io::Result<Vec<String>> {
        crate::procfs::arguments(self.pid)
    }

    /// Waits for its end; a zombie has ended.
    pub async fn ended(&self) {
        // A descriptor that cannot be waited for any more belongs to no process any more.
        drop(self.fd.readable().await);
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended, or must not be signalled.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }
}
