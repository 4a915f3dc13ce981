//! Why the launcher cannot go on.

use std::io;

use super::backend::BackendError;
use super::libvirt_hook::LibvirtHookError;
use super::root_lock::LockError;
use super::standalone;
use crate::cmd::DoorError;
use hooks::HookError;
use os::file_error::FileError;
use pod::PodError;

/// Why the launcher cannot go on (exit status 2).
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `--simulate-crash`.
    #[error("Simulated virt-launcher crash")]
    Simulated,
    /// Signal handlers cannot be installed.
    #[error("signals cannot be caught")]
    Signals(#[source] io::Error),
    /// The directory of `--root`, or a socket, cannot be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// A directory of the pod cannot be made.
    #[error("the pod's directories cannot be made")]
    Directories(#[from] PodError),
    #[error("this --root cannot be used")]
    Locked(#[from] LockError),
    #[error("failed to connect to libvirt")]
    Backend(#[from] BackendError),
    #[error("libvirt's hook for migrations cannot be installed")]
    Hook(#[from] LibvirtHookError),
    #[error("hook sidecars are missing")]
    Sidecars(#[from] HookError),
    #[error("STANDALONE_VMI is not a VirtualMachineInstance")]
    Standalone(#[from] standalone::StandaloneError),
    /// The VMI of `STANDALONE_VMI` cannot be started.
    #[error("Failed to sync VMI, quitting")]
    StandaloneSync(#[source] DoorError),
    /// virt-handler gave up the migration to this pod before the domain arrived.
    #[error("received early exit signal")]
    MigrationGivenUp,
    /// No domain started in time.
    // D-sup-20 (docs/differences.md).
    #[error("timed out waiting for domain to be defined")]
    NoDomain,
}
