//! Why a check failed.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use domain::xml::ReadError;

use super::inputs::MARKED_ELEMENTS;
use crate::error::{CallError, HookError};
use crate::plugins::PluginError;
use crate::sidecar::Version;
use crate::timeout::display_duration;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the program cannot be run")]
    Start(#[source] io::Error),
    #[error("the program ended: {status}")]
    Exited { status: ExitStatus },
    #[error("the program ended: {status}")]
    EndedInCall {
        status: ExitStatus,
        /// How the call failed.
        #[source]
        call: Box<Failure>,
    },
    #[error(transparent)]
    NotReady(#[from] HookError),
    #[error("the program has no socket in the directory")]
    NoSocket,
    #[error("it subscribes to {name:?}, which {version} does not have")]
    HookPoint { name: String, version: Version },
    #[error("it subscribes to no hook point")]
    NoHookPoints,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("KubeVirt ignores {names} of the cloud-init data: it has no such name")]
    IgnoredData { names: String },
    #[error(
        "it was not called, as the VMI's cloud-init data need a Secret; put it beside the VM in its file, with its keys"
    )]
    NeedsSecret,
    #[error("given its own result, it changes it again: {changes}")]
    NotIdempotent { changes: String },
    #[error(
        "{missing} of {} elements that it does not know are missing in its answer",
        MARKED_ELEMENTS
    )]
    LostElements { missing: usize },
    /// An element for its namespace, and the remedy.
    #[error("libvirt ignores {0}")]
    Ignored(String),
    #[error("it does not answer Info afterwards")]
    NotServing(#[source] CallError),
    /// A plugin's call failed, or a launcher would refuse its answer.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error("it does not accept a connection afterwards")]
    NotAccepting(#[source] CallError),
    #[error("it serves no hook point of LauncherHookService")]
    NoPoints,
    #[error("it is still running after {}", display_duration(*after))]
    StillRunning { after: Duration },
    #[error("the domain XML for the check cannot be read")]
    Input(#[from] ReadError),
}
