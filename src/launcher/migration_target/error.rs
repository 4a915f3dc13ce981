//! Why a domain from another node cannot reach this pod.

use std::io;
use std::path::PathBuf;

use convert::premigration::PreMigrationError;

/// Why the pod is not ready for a domain from another node.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The domain that arrives cannot be changed for this pod.
    #[error("failed to listen on unix socket {}", path.display())]
    HookServer {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The source cannot reach this pod's QEMU by TCP.
    #[error("proxy listening failed, socket {}", path.display())]
    Proxy {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// QEMU does not have the guest's machine type, in libvirt's words.
    #[error(
        "this image cannot receive the guest: its QEMU does not have the machine type {machine:?}; migrate it to a pod of the image that it runs on, or restart the VM with another spec.domain.machine.type"
    )]
    MachineType {
        /// The running guest's, or the VMI's.
        machine: String,
        #[source]
        refusal: libvirt::Error,
    },
    /// libvirt does not know the CPU model.
    #[error(
        "this image cannot receive the guest: its libvirt does not know the CPU model {model:?}; migrate it to a pod of the image that it runs on, or restart the VM with another spec.domain.cpu.model"
    )]
    CpuModel {
        /// The VMI's.
        model: String,
    },
    /// A functional test of KubeVirt requests the failure, and expects the reference's text.
    #[error(
        "Blocking preparation of migration target in order to satisfy a functional test condition"
    )]
    FunctionalTest,
}

impl TargetError {
    /// Whether no later attempt in this pod can succeed.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::MachineType { .. } | Self::CpuModel { .. })
    }
}

/// Why the arriving domain is not changed for this pod.
#[derive(Debug, thiserror::Error)]
pub enum HookServerError {
    #[error("the exchange with libvirt's hook failed")]
    Exchange(#[from] io::Error),
    /// The client disconnected before its document was complete, or the document is too long.
    #[error("libvirt's hook sent {bytes} bytes that are not a domain document")]
    Incomplete {
        /// Bytes received.
        bytes: usize,
    },
    /// The client has sent or read nothing for too long.
    #[error("libvirt's hook did not finish within {seconds} s")]
    TimedOut {
        /// The time limit.
        seconds: u64,
    },
    /// The document does not fit this pod.
    #[error(transparent)]
    Rewrite(#[from] PreMigrationError),
    /// The thread that changes the document panicked.
    #[error("internal error in changing the domain that arrives, see the launcher's log")]
    Panicked,
}
