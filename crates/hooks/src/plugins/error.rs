//! Why a plugin failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use domain::xml::ReadError;
use tonic::Code;

use super::boot_files::BootFileError;
use super::config::TimeoutError;
use super::evaluator::EvaluatorError;
use super::point::LauncherHookPoint;
use super::settings::SettingsError;
use crate::answer::AnswerError;
use crate::error::HookCallError;
use crate::timeout::display_limit;
use crate::work::WorkError;

#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// virt-handler's list of plugins is malformed.
    #[error("the list of plugins cannot be read")]
    List(#[source] serde_json::Error),
    /// The file of the last sync's plugins cannot be read.
    #[error(
        "the plugins of the last sync cannot be read, and one of them may refuse the migration; the next sync brings them again"
    )]
    Known(#[source] std::io::Error),
    /// The domain XML for the first plugin cannot be read. The cause is not a plugin.
    #[error("the domain XML for the plugins cannot be read")]
    Domain(#[source] ReadError),
    /// Reading or writing the domain did not finish. The cause is not a plugin.
    #[error("the domain could not be prepared for the plugins")]
    Work(#[from] WorkError),
    /// A changed cloud-init image or NVRAM cannot be put in its place.
    #[error("the files that plugins have changed cannot be put in their place")]
    BootFiles(#[source] BootFileError),
    /// A condition failed. The failure strategy does not apply.
    #[error("plugin {plugin}{} condition evaluation failed", hook.map(|n| format!(" hook {n}")).unwrap_or_default())]
    Condition {
        plugin: String,
        /// Index of the hook from 0. `None` for the plugin's own condition.
        hook: Option<usize>,
        #[source]
        reason: Box<EvaluatorError>,
    },
    /// A hook with the failure strategy `Fail` failed.
    #[error("plugin {plugin} hook {hook} failed")]
    Hook {
        plugin: String,
        /// Index of the hook from 0.
        hook: usize,
        #[source]
        reason: Box<PluginHookError>,
    },
}

impl PluginError {
    /// Whether the sidecar does not serve the hook point.
    pub(crate) fn is_unserved(&self) -> bool {
        let Self::Hook { reason, .. } = self else {
            return false;
        };
        let PluginHookError::Sidecar(SidecarError::Call { reason, .. }) = &**reason else {
            return false;
        };
        matches!(reason, HookCallError::Failed { code, .. } if *code == Code::Unimplemented)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PluginHookError {
    /// The error with its hook point, because one sidecar serves several.
    #[error("{0}")]
    At(LauncherHookPoint, #[source] Box<Self>),
    #[error(transparent)]
    Expression(#[from] EvaluatorError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// The returned domain is refused.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Checking the returned domain did not finish.
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error(transparent)]
    Timeout(#[from] TimeoutError),
    /// The cloud-init image or the NVRAM cannot be given to the plugin, or its copy is refused.
    #[error(transparent)]
    BootFile(#[from] BootFileError),
    /// The returned migration settings are refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The socket is not in the plugin's directory.
    #[error("socket path {socket:?} is outside {}/", dir.display())]
    Outside {
        /// The socket's path, as the hook has it.
        socket: String,
        dir: PathBuf,
    },
    /// The socket is a symbolic link, which could lead to the socket of another plugin.
    #[error("socket path {socket:?} is a symlink, which is not allowed")]
    Symlink {
        /// The socket's path, as the hook has it.
        socket: String,
    },
    #[error("socket path {socket:?}")]
    Inspect {
        /// The socket's path, as the hook has it.
        socket: String,
        source: io::Error,
    },
    #[error("sidecar socket {socket} not ready after {}", display_limit(*after))]
    NotReady {
        /// The socket's path, as the hook has it.
        socket: String,
        after: Duration,
    },
    #[error("{method} on {socket}")]
    Call {
        method: &'static str,
        /// The socket's path, as the hook has it.
        socket: String,
        #[source]
        reason: HookCallError,
    },
}
