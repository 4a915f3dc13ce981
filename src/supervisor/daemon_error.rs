//! Errors of libvirt's daemons.

use std::path::PathBuf;
use std::process::ExitStatus;

use os::file_error::FileError;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No daemon is installed.
    #[error(
        "neither {} is there: install libvirt's QEMU driver (Debian: libvirt-daemon-system; Fedora: \
         libvirt-daemon-driver-qemu), or use --libvirt=embed",
        join(.0)
    )]
    NotInstalled(Vec<PathBuf>),
    /// The program cannot be run, the process that serves the socket cannot be determined, or the
    /// sockets' directory is gone.
    #[error(transparent)]
    File(#[from] FileError),
    /// The daemon exited too often before it served its socket.
    #[error(
        "{name} exited {times} times before it was ready{}; the last line of its log: {last_line:?}",
        .status.map(|status| format!(", the last time with {status}")).unwrap_or_default()
    )]
    KeepsExiting {
        name: &'static str,
        times: u32,
        /// The status of the last exit, if it was a child's.
        status: Option<ExitStatus>,
        /// The last line of the daemon's stderr.
        last_line: String,
    },
    /// A foreign daemon serves the socket.
    #[error("another libvirt daemon already serves {}: stop it, or use --root DIR or --libvirt=embed", .0.display())]
    SocketInUse(PathBuf),
}

fn join(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" nor ")
}
