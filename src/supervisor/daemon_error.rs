//! What is wrong with libvirt's daemons.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why libvirt's daemon does not serve.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No daemon is installed.
    #[error(
        "neither {} is there: install libvirt's QEMU driver (Debian: libvirt-daemon-system; Fedora: \
         libvirt-daemon-driver-qemu), or use --libvirt=embed",
        join(.0)
    )]
    NotInstalled(Vec<PathBuf>),
    /// It can't be run.
    #[error("can't start {}", program.display())]
    Spawn {
        /// What was to be run.
        program: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// It exited again and again before it served its socket.
    #[error(
        "{name} exited {times} times before it was ready, the last time with {status}; the last line of its log: {last_line:?}"
    )]
    KeepsExiting {
        /// The daemon.
        name: &'static str,
        /// How often.
        times: u32,
        /// How it ended.
        status: ExitStatus,
        /// The last line of its stderr.
        last_line: String,
    },
    /// A daemon that is not ours serves the socket.
    #[error("another libvirt daemon already serves {}: stop it, or use --root DIR or --libvirt=embed", .0.display())]
    SocketInUse(PathBuf),
    /// Which process serves the socket can't be found out.
    #[error("can't find out which process serves {}", socket.display())]
    UnknownOwner {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The directory of its sockets is gone.
    #[error("can't wait for libvirt's socket in {}", dir.display())]
    NoDirectory {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

fn join(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" nor ")
}
