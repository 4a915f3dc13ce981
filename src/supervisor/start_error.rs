//! Why the launcher can't go on.

use std::io;
use std::path::PathBuf;

use super::backend::BackendError;
use super::libvirt_hook::LibvirtHookError;
use super::root_lock::LockError;
use super::standalone;
use crate::cmd::CallError;
use hooks::HookError;
use pod::PodError;

/// Why the launcher can't go on (exit status 2).
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `--simulate-crash`.
    #[error("Simulated virt-launcher crash")]
    Simulated,
    /// Signals can't be caught.
    #[error("signals can't be caught")]
    Signals(#[source] io::Error),
    /// `--root` can't be made.
    #[error("can't make the root directory {}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A directory of the pod can't be made.
    #[error("the pod's directories can't be made")]
    Directories(#[from] PodError),
    /// Another launcher uses the root, or its lock file cannot be used.
    #[error("this --root cannot be used")]
    Locked(#[from] LockError),
    /// libvirt can't be reached.
    #[error("failed to connect to libvirt")]
    Backend(#[from] BackendError),
    /// libvirt's hook can't be put in its place.
    #[error("libvirt's hook for migrations can't be installed")]
    Hook(#[from] LibvirtHookError),
    /// Sidecars are missing.
    #[error("hook sidecars are missing")]
    Sidecars(#[from] HookError),
    /// The command socket can't be served.
    #[error("can't serve {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// `STANDALONE_VMI` is not a VMI.
    #[error("STANDALONE_VMI is not a VirtualMachineInstance")]
    Standalone(#[from] standalone::StandaloneError),
    /// The VMI of `STANDALONE_VMI` can't be started.
    #[error("Failed to sync VMI, quitting")]
    StandaloneSync(#[source] CallError),
    /// The monitor can't be told which executable takes over.
    #[error("can't note which executable takes over")]
    Upgrade(#[source] io::Error),
    /// virt-handler has given up the migration to this pod before its domain has come.
    #[error("received early exit signal")]
    MigrationGivenUp,
    /// No domain was started in time.
    #[error("timed out waiting for domain to be defined")]
    NoDomain,
}
