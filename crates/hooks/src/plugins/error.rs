//! Why a plugin failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use domain::xml::ReadError;

use super::config::TimeoutError;
use super::evaluator::ExpressionError;
use crate::answer::AnswerError;
use crate::error::CallError;
use crate::timeout::display_limit;
use crate::work::WorkError;

/// Why the plugins could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The list of plugins from virt-handler is not what it should be.
    #[error("the list of plugins cannot be read")]
    List(#[source] serde_json::Error),
    /// The domain XML for the first plugin cannot be read. That is not a plugin's fault.
    #[error("the domain XML for the plugins cannot be read")]
    Domain(#[source] ReadError),
    /// Reading or writing the domain did not end. That is not a plugin's fault.
    #[error("the domain could not be prepared for the plugins")]
    Work(#[from] WorkError),
    /// A condition failed. The failure strategy does not matter.
    #[error("plugin {plugin}{} condition evaluation failed", hook.map(|n| format!(" hook {n}")).unwrap_or_default())]
    Condition {
        /// The plugin's name.
        plugin: String,
        /// The number of the hook, from 0. `None` for the condition of the plugin.
        hook: Option<usize>,
        /// Why.
        #[source]
        reason: Box<ExpressionError>,
    },
    /// A hook with the failure strategy `Fail` failed.
    #[error("plugin {plugin} hook {hook} failed")]
    Hook {
        /// The plugin's name.
        plugin: String,
        /// The number of the hook, from 0.
        hook: usize,
        /// Why.
        #[source]
        reason: Box<PluginHookError>,
    },
}

/// Why a hook of a plugin failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginHookError {
    /// Its expression.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// Its sidecar.
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// The domain that came back.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Checking that domain did not end.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// Its timeout.
    #[error(transparent)]
    Timeout(#[from] TimeoutError),
}

/// Why the sidecar of a plugin failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// The socket is not in the plugin's directory.
    #[error("socket path {socket:?} is outside {}/", dir.display())]
    Outside {
        /// The path in the hook.
        socket: String,
        /// The plugin's directory.
        dir: PathBuf,
    },
    /// The socket is a symbolic link, which could lead to the socket of another plugin.
    #[error("socket path {socket:?} is a symlink, which is not allowed")]
    Symlink {
        /// The path in the hook.
        socket: String,
    },
    /// The socket cannot be inspected.
    #[error("socket path {socket:?}")]
    Inspect {
        /// The path in the hook.
        socket: String,
        /// Why.
        source: io::Error,
    },
    /// The socket did not appear in time.
    #[error("sidecar socket {socket} not ready after {}", display_limit(*after))]
    NotReady {
        /// The path in the hook.
        socket: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The call failed.
    #[error("MutateDomain on {socket}")]
    Call {
        /// The path in the hook.
        socket: String,
        /// Why.
        #[source]
        reason: CallError,
    },
}
