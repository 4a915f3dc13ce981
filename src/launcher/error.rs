//! Why the launcher could not do what it was asked.

use std::sync::Arc;
use std::time::Duration;

use super::backup::error::BackupError;
use super::guest_agent::error::AgentError;
use super::migration_source::error::MigrationError;
use super::migration_target::error::{HookServerError, ProxyError};
use super::vm::Refusal;

use api::STILL_IN_PROGRESS;
use convert::plan::InterfaceWhy;
use convert::{ConvertError, HotplugPortsError};
use domain::guest_agent::answer::AnswerError;
use domain::xml::ReadError;
use hooks::HookError;
use pod::PodError;
use pod::network::NetworkError;

/// An error of the domain manager. Texts that other components know are kept to the letter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherError {
    /// The pod is not as the VMI needs it.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The VM's network cannot be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The VMI cannot be converted.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// A sidecar failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The cloud-init data that came back from a sidecar cannot be used.
    #[error("the cloud-init data cannot be used")]
    CloudInit(#[source] serde_json::Error),
    /// libvirt refused, in its own words and the reference's format.
    #[error(transparent)]
    Libvirt(#[from] libvirt::Error),
    /// libvirt refused a definition that sidecars or plugins had changed.
    #[error("{refusal}; the domain was changed by {}", modified_by.join(", "))]
    Define {
        /// Those that changed it.
        modified_by: Vec<String>,
        /// libvirt's error. It begins the text, as in the reference, and so is not a source.
        refusal: libvirt::Error,
    },
    /// The guest did not do what it was asked through its agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The guest agent's answer cannot be used.
    #[error(transparent)]
    AgentAnswer(#[from] AnswerError),
    /// libvirt's own XML cannot be read.
    #[error("libvirt's XML of the domain cannot be read")]
    Xml(#[source] ReadError),
    /// The hotplug ports of the domain cannot be planned or made.
    #[error(transparent)]
    HotplugPorts(#[from] HotplugPortsError),
    /// The VMI runs, as its status says, but libvirt does not know the domain.
    #[error(
        "libvirt no longer has the domain of this VMI, which has already run; it is not started again in the same pod"
    )]
    Lost,
    /// There is no domain to pause or unpause.
    #[error("Domain not found.")]
    NoDomain,
    /// The guest cannot be asked to reboot.
    #[error("VMI neither have the agent connected nor the ACPI feature enabled")]
    NoWayToReboot,
    /// QEMU has no result.
    #[error("QEMU did not measure in time how fast the guest writes to its memory")]
    NoDirtyRate,
    /// The domain that arrives cannot be changed for this pod.
    #[error(transparent)]
    HookServer(#[from] HookServerError),
    /// The source cannot reach this pod's QEMU.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// A functional test of KubeVirt's wants the failure.
    #[error("{0}")]
    FunctionalTest(&'static str),
    /// A backup or a checkpoint cannot be made.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A kill came while the domain was being started.
    #[error("the virtual machine was killed while it was being started")]
    Killed,
    /// A migration does not begin, or fails.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// Some disks or network interfaces could not be changed; the others were.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Devices(Vec<DeviceFailure>),
    /// A plugin failed.
    #[error(transparent)]
    Plugin(#[from] hooks::plugins::PluginError),
    /// The state of the VM does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another change is in progress for too long.
    #[error(
        "{what}: another change of the domain {STILL_IN_PROGRESS}; nothing was done, send it again"
    )]
    Busy {
        /// What was asked for.
        what: &'static str,
    },
    /// It goes on, but the caller has waited long enough.
    #[error(
        "{what} {STILL_IN_PROGRESS} after {} s; it continues in the background, send it again to wait for it",
        after.as_secs()
    )]
    Slow {
        /// What goes on.
        what: &'static str,
        /// How long so far.
        after: Duration,
    },
    /// A worker has panicked.
    #[error("internal error in {what}, see the launcher's log")]
    Worker {
        /// What it was doing.
        what: &'static str,
    },
    /// The result of a sync that several requests had joined.
    #[error(transparent)]
    Joined(Arc<LauncherError>),
}

impl LauncherError {
    /// A checkpoint is of no use any more: the next backup has to be a full one.
    #[must_use]
    pub fn is_checkpoint_invalid(&self) -> bool {
        match self {
            Self::Backup(error) => error.is_checkpoint_invalid(),
            Self::Libvirt(error) => error.is_checkpoint_invalid(),
            _ => false,
        }
    }

    /// libvirt's daemon has ended: the same may work on the next connection.
    pub(super) fn is_connection_lost(&self) -> bool {
        match self {
            Self::Libvirt(error) => error.is_connection_lost(),
            Self::Devices(failures) => failures.iter().any(|failure| {
                matches!(failure, DeviceFailure::Interface(it) if it.refusal.is_connection_lost())
            }),
            _ => false,
        }
    }
}

/// A device of the running domain that could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFailure {
    /// A disk.
    #[error(transparent)]
    Disk(#[from] DiskFailure),
    /// A network interface.
    #[error(transparent)]
    Interface(#[from] InterfaceFailure),
    /// The network of an interface that is to be plugged in. No source: the text has it already.
    #[error("{}", os::logging::chain(.0))]
    Network(NetworkError),
    /// An interface that cannot be plugged in, whatever the pod has.
    #[error("{0}")]
    NoDevice(InterfaceWhy),
}

/// A disk that could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("disk \"{volume}\" ({target}): {verb}: {reason}")]
pub struct DiskFailure {
    /// Volume.
    pub volume: String,
    /// Target, such as `sda`.
    pub target: String,
    /// `attach`, `detach` or `update`.
    pub verb: &'static str,
    /// libvirt's reason, or ours.
    pub reason: String,
}

/// A network interface that could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("interface \"{name}\": {verb}: {refusal}")]
pub struct InterfaceFailure {
    /// Its name in the VMI.
    pub name: String,
    /// `attach`, `detach` or `update`.
    pub verb: &'static str,
    /// libvirt's error. It is in the text, and so is no source.
    pub refusal: libvirt::Error,
}
