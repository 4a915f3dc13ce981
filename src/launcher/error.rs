//! Why the launcher refused or failed a request.

use std::sync::Arc;
use std::time::Duration;

use super::apply::error::DeviceFailures;
use super::backup::error::BackupError;
use super::guest_agent::error::AgentError;
use super::migration_source::error::MigrationError;
use super::migration_target::error::TargetError;
use super::start::error::DomainStartError;
use super::vm::Refusal;

use api::STILL_IN_PROGRESS;
use convert::ConvertError;
use domain::guest_agent::answer::AgentAnswerError;
use domain::xml::ReadError;
use hooks::{CurrentCall, HookError};
use pod::PodError;
use pod::network::NetworkError;

/// An error of the domain manager. Texts that other components match on are exact.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// The pod lacks something that the VMI needs.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The VM's network cannot be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The VMI cannot be converted.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The cloud-init data returned by a sidecar is unusable.
    #[error("the cloud-init data cannot be used")]
    CloudInit(#[source] serde_json::Error),
    /// libvirt's error, in its own words and the reference's format.
    #[error(transparent)]
    Libvirt(#[from] libvirt::Error),
    /// The guest did not do what it was asked through its agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The guest agent's answer is unusable.
    #[error(transparent)]
    AgentAnswer(#[from] AgentAnswerError),
    /// libvirt's own XML is unreadable.
    #[error("libvirt's XML of the domain cannot be read")]
    Xml(#[source] ReadError),
    /// The VMI's status or this launcher says that it has run, but libvirt has no such domain.
    #[error(
        "libvirt no longer has the domain of this VMI, which has already run; it is not started again in the same pod"
    )]
    Lost,
    /// libvirt has no domain of this VMI, or it does not run.
    #[error("Domain not found.")]
    NoDomain,
    /// The guest cannot be asked to reboot.
    #[error("VMI neither have the agent connected nor the ACPI feature enabled")]
    NoWayToReboot,
    /// QEMU has measured nothing.
    #[error("QEMU did not measure in time how fast the guest writes to its memory")]
    NoDirtyRate,
    /// The pod is not ready for a domain from another node.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// One of KubeVirt's functional tests requests the failure.
    #[error("{0}")]
    FunctionalTest(&'static str),
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The domain does not start.
    #[error(transparent)]
    Start(#[from] DomainStartError),
    /// A migration does not start, or fails.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// Some disks or network interfaces could not be changed.
    #[error(transparent)]
    Devices(#[from] DeviceFailures),
    /// A plugin failed.
    #[error(transparent)]
    Plugin(#[from] hooks::plugins::PluginError),
    /// The VM's state does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another change takes too long.
    #[error(
        "{what}: another change of the domain {STILL_IN_PROGRESS}; nothing was done, send it again"
    )]
    Busy {
        /// The request.
        what: &'static str,
    },
    /// It continues, but the caller has waited long enough.
    #[error(
        "{what} {STILL_IN_PROGRESS} after {} s; it continues in the background, send it again to wait for it",
        after.as_secs()
    )]
    Slow {
        /// The request.
        what: &'static str,
        /// Time so far.
        after: Duration,
    },
    /// Like [`Self::Slow`], because a sidecar or plugin has not answered.
    #[error(
        "{what} {STILL_IN_PROGRESS} after {} s: it waits for {hook}, in the background; send it again to wait for it",
        after.as_secs()
    )]
    SlowHook {
        /// The request.
        what: &'static str,
        /// Time so far.
        after: Duration,
        /// Who was called.
        hook: String,
    },
    /// A worker panicked.
    #[error("internal error in {what}, see the launcher's log")]
    Worker {
        /// The worker's task.
        what: &'static str,
    },
    /// The result of a sync that several requests joined.
    #[error(transparent)]
    Joined(Arc<LauncherError>),
}

impl LauncherError {
    /// A call that takes long says which sidecar or plugin it waits for.
    pub(super) fn naming(self, hook: &CurrentCall) -> Self {
        match (self, hook.whom()) {
            (Self::Slow { what, after }, Some(hook)) => Self::SlowHook { what, after, hook },
            (error, _) => error,
        }
    }

    /// Whether the checkpoint is no longer usable: the next backup has to be a full one.
    pub fn is_checkpoint_invalid(&self) -> bool {
        match self {
            Self::Backup(error) => error.is_checkpoint_invalid(),
            Self::Libvirt(error) => error.is_checkpoint_invalid(),
            _ => false,
        }
    }

    /// Whether libvirt's daemon exited: a retry on the next connection may succeed.
    pub(super) fn is_connection_lost(&self) -> bool {
        match self {
            Self::Libvirt(error) => error.is_connection_lost(),
            Self::Devices(failures) => failures.is_connection_lost(),
            _ => false,
        }
    }
}
