//! Why a check failed.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use domain::xml::ReadError;

use super::inputs::MARKED_ELEMENTS;
use crate::error::{HookCallError, HookError};
use crate::plugins::PluginError;
use crate::sidecar::Version;
use crate::timeout::display_limit;

#[derive(Debug, thiserror::Error)]
pub enum CheckFailure {
    #[error("the program cannot be run")]
    Start(#[source] io::Error),
    #[error("the program ended: {status}")]
    Exited { status: ExitStatus },
    #[error("the program ended: {status}")]
    EndedInCall {
        status: ExitStatus,
        /// How the call failed.
        #[source]
        call: Box<CheckFailure>,
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
    Call(#[from] HookCallError),
    #[error(
        "it was not called, as the VMI's cloud-init data need a Secret; put it beside the VM in its file, with its keys"
    )]
    NeedsSecret,
    #[error("given its own result, it changes it again: {0}")]
    NotIdempotent(String),
    #[error(
        "{missing} of {} elements that it does not know are missing in its answer",
        MARKED_ELEMENTS
    )]
    LostElements { missing: usize },
    /// A part of the answer has no effect. The text is whole sentences.
    #[error("{0}")]
    Ignored(String),
    #[error("it does not serve afterwards")]
    NotServing(#[source] HookCallError),
    /// A plugin's call failed, or a launcher would refuse its answer.
    #[error(transparent)]
    Plugin(PluginError),
    #[error("it does not serve the hook point")]
    Unserved,
    #[error("it serves no hook point of LauncherHookService")]
    NoPoints,
    #[error("it is still running after {}", display_limit(*after))]
    StillRunning { after: Duration },
    #[error("the domain XML for the check cannot be read")]
    Input(#[from] ReadError),
}

impl From<PluginError> for CheckFailure {
    fn from(error: PluginError) -> Self {
        match error.is_unserved() {
            true => Self::Unserved,
            false => Self::Plugin(error),
        }
    }
}
