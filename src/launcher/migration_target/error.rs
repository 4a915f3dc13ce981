//! Why a domain from another node does not reach this pod.

use std::io;
use std::path::PathBuf;

use convert::premigration::PreMigrationError;

/// Why a domain that arrives is not changed for this pod.
#[derive(Debug, thiserror::Error)]
pub enum HookServerError {
    /// The socket cannot be made.
    #[error("failed to listen on unix socket {}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The connection has failed.
    #[error("the exchange with libvirt's hook failed")]
    Exchange(#[from] io::Error),
    /// The client has ended before its document has, or the document is too long.
    #[error("libvirt's hook brought {bytes} bytes that are not a domain document")]
    Incomplete {
        /// How much came.
        bytes: usize,
    },
    /// The client does not go on.
    #[error("libvirt's hook did not go on within {seconds} s")]
    TimedOut {
        /// How long it had.
        seconds: u64,
    },
    /// The document cannot be used here.
    #[error(transparent)]
    Rewrite(#[from] PreMigrationError),
    /// The thread that changes the document has panicked.
    #[error("internal error in changing the domain that arrives, see the launcher's log")]
    Panicked,
}

/// Why QEMU cannot be reached by TCP.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The socket cannot be made.
    #[error("proxy listening failed, socket {}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}
