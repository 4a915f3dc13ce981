//! Why hooks could not run. Every text names the sidecar, so that its author can be told.

use std::path::PathBuf;
use std::time::Duration;

use super::check::AnswerError;
use super::sidecar::Point;
use domain::xml::ReadError;

/// A failure of a sidecar, or of looking for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// Not all sidecars came in time.
    #[error(
        "{came} of {expected} hook sidecars came within the time limit; came: {}; not there: {}",
        list(there),
        list(missing)
    )]
    Missing {
        /// How many are to come.
        expected: usize,
        /// How many came.
        came: usize,
        /// Those that came.
        there: Vec<String>,
        /// What else was seen, and why it is no sidecar yet.
        missing: Vec<String>,
    },
    /// The directory of the sockets cannot be read.
    #[error("the hook sidecars' directory {} cannot be read", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A sidecar that can never serve this launcher.
    #[error("hook sidecar {sidecar} cannot be used: {reason}")]
    Unusable {
        /// Name or socket.
        sidecar: String,
        /// Why, and what would do.
        reason: String,
    },
    /// A call failed or its answer is refused.
    #[error("hook sidecar {sidecar}: {point}: {reason}")]
    Call {
        /// Name and socket.
        sidecar: String,
        /// Which callback.
        point: Point,
        /// What went wrong.
        reason: CallError,
    },
    /// The document for the first sidecar is no domain; not the fault of a sidecar.
    #[error("the domain cannot be given to the hook sidecars")]
    Input(#[source] ReadError),
}

/// What can go wrong in one call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody accepts connections on the socket.
    #[error("cannot be reached: {0}; has its container ended?")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer within {}", seconds(*after))]
    TimedOut {
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke before the answer was there.
    #[error("the connection broke before the answer came: {0}")]
    Broken(String),
    /// The sidecar itself says that it failed.
    #[error("failed with {code}: {message}")]
    Failed {
        /// The gRPC status code.
        code: String,
        /// The sidecar's words.
        message: String,
    },
    /// The answer is larger than what is read.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The answer is no document, or one of another domain.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The answer is no cloud-init data.
    #[error("the answer is no cloud-init data: {0}")]
    CloudInit(String),
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// A time as people write it: `250 ms`, `20 s`.
pub(super) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
