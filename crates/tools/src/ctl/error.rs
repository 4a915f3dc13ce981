//! What can go wrong in `launcherctl`.

use std::io;
use std::path::{Path, PathBuf};

/// A failure of a verb, in a line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CtlError {
    /// The async runtime could not start.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// A file could not be read or written.
    #[error("cannot {action} {path}", path = path.display())]
    File {
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A manifest is no VMI or VM.
    #[error("{file}: {reason}")]
    Manifest {
        /// The file, or `standard input`.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// The VMI is refused by the conversion.
    #[error("{0}")]
    Convert(#[from] convert::ConvertError),
    /// A sidecar failed.
    #[error(transparent)]
    Hook(#[from] hooks::HookError),
    /// The VMI cannot be explained.
    #[error(transparent)]
    Explain(#[from] convert::explain::ExplainError),
    /// XML could not be read.
    #[error("{file}: {source}")]
    Xml {
        /// The file, or `standard input`.
        file: String,
        /// What is wrong with it.
        source: domain::xml::ReadError,
    },
    /// No launcher, or too many to choose from.
    #[error("{0}")]
    Target(String),
    /// The socket does not answer.
    #[error("no launcher answers on {path}; is it still running?", path = path.display())]
    Connect {
        /// The cmd socket.
        path: PathBuf,
        /// Why not.
        source: tonic::transport::Error,
    },
    /// The call failed on the way.
    #[error("{call}: {message}", message = status.message())]
    Call {
        /// Name of the call.
        call: &'static str,
        /// gRPC status.
        status: Box<tonic::Status>,
    },
    /// The launcher answered with a failure.
    #[error("{call}: {message}")]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// Its own words.
        message: String,
    },
    /// `run` could not start or lost its launcher.
    #[error("{0}")]
    Run(String),
}

impl CtlError {
    /// For `map_err` on file operations.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// A document that is not what it should be; `-` is standard input.
    pub fn manifest(file: &Path, reason: impl ToString) -> Self {
        Self::Manifest {
            file: name_of(file),
            reason: reason.to_string(),
        }
    }

    /// For `map_err` on gRPC calls.
    pub fn call(call: &'static str) -> impl FnOnce(tonic::Status) -> Self {
        move |status| Self::Call {
            call,
            status: Box::new(status),
        }
    }
}

/// How a file that was given is called in an error.
pub fn name_of(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".into()
    } else {
        file.display().to_string()
    }
}
