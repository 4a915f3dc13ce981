//! Why the monitor fails.

use std::io;
use std::path::PathBuf;

/// An internal error: exit status 1.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
    /// The command socket cannot be bound.
    #[error("cannot listen on {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The launcher cannot be started.
    #[error("failed to run {}", program.display())]
    Start {
        /// The launcher.
        program: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// QEMU has not ended when it was asked.
    #[error("QEMU (pid {pid}) is still there {seconds} s after SIGTERM, and was killed")]
    QemuStays {
        /// Its process.
        pid: i32,
        /// How long it had.
        seconds: u64,
    },
}
