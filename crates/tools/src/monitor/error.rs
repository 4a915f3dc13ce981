use std::io;
use std::path::PathBuf;

use os::file_error::FileError;

/// Errors of the monitor itself: exit status 1.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the process that is to own the command socket does not start")]
    Owner(#[source] io::Error),
    #[error("failed to run {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// QEMU did not exit when asked.
    #[error("QEMU (pid {pid}) is still there {seconds} s after SIGTERM, and was killed")]
    QemuStays {
        pid: i32,
        /// How long it was given.
        seconds: u64,
    },
}
