//! Why a hook failed. Every text names the sidecar, so that its author can be found.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tonic::{Code, Status};

use super::answer::AnswerError;
use super::cloud_init::CloudInitError;
use super::sidecar::{HookPoint, Version};
use super::timeout::display_limit;
use super::work::WorkError;
use domain::excerpt;
use domain::xml::ReadError;

/// The hook sidecars are not there, or one of them failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// Not every sidecar answered `Info` in time.
    #[error(
        "{count} of {expected} hook sidecars are ready within the time limit; ready: {}; not ready: {}",
        list(ready),
        list(not_ready)
    )]
    NotReady {
        /// How many sidecars the pod has.
        expected: usize,
        /// How many are ready. A sidecar may have more than one socket.
        count: usize,
        /// The ready ones, by name and socket.
        ready: Vec<String>,
        /// Every other file in the hooks directory, with the reason why it is not a sidecar yet.
        not_ready: Vec<String>,
    },
    /// The hooks directory cannot be read.
    #[error("the directory of the hook sidecars' sockets, {}, cannot be read", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A sidecar that can never work with this launcher.
    #[error("hook sidecar {sidecar} cannot be used")]
    Unusable {
        /// Name or socket.
        sidecar: String,
        /// Why.
        #[source]
        reason: UnusableReason,
    },
    /// A hook call failed, or its answer is refused.
    #[error("hook sidecar {sidecar}: {point}")]
    Call {
        /// Name and socket.
        sidecar: String,
        /// Which hook.
        point: HookPoint,
        /// Why.
        #[source]
        reason: CallError,
    },
    /// The domain XML for the first sidecar cannot be read. That is not a sidecar's fault.
    #[error("the domain XML for the hook sidecars cannot be read")]
    Input(#[source] ReadError),
    /// Reading the domain XML for the first sidecar did not end. That is not a sidecar's fault.
    #[error("the data for the hook sidecars could not be prepared")]
    Work(#[from] WorkError),
}

/// Why a sidecar can never work with this launcher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableReason {
    /// No common protocol version.
    #[error("it offers the versions {}; this launcher supports {:?}", list(offered), Version::ALL.map(Version::name))]
    Versions {
        /// What the sidecar offers.
        offered: Vec<String>,
    },
    /// A gRPC server without the service `Info`.
    #[error("it does not serve kubevirt.hooks.info.Info: {message}")]
    NoInfoService {
        /// The text of its gRPC status.
        message: String,
    },
    /// `Info` failed.
    #[error("Info")]
    Info(#[source] CallError),
}

/// Why one call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nothing accepts connections on the socket.
    #[error("cannot be reached: {0}; has its container ended?")]
    Unreachable(io::Error),
    /// No answer in time.
    #[error("no answer within {}", display_limit(*after))]
    TimedOut {
        /// The time that the call had.
        after: Duration,
    },
    /// The connection ended before the answer arrived.
    #[error("the connection broke before the answer arrived: {}", root_cause(.0.as_ref()))]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// The sidecar answered with an error.
    #[error("failed with {code:?}: {message}")]
    Failed {
        /// The gRPC status code.
        code: Code,
        /// The sidecar's text, cut to [`MAX_MESSAGE_CHARS`].
        message: String,
    },
    /// The answer is larger than what is accepted.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The answer is not domain XML, or describes another domain.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Checking the answer did not end.
    #[error("the answer could not be checked")]
    Work(#[from] WorkError),
    /// The answer is not cloud-init data.
    #[error("the answer is not cloud-init data")]
    CloudInit(#[from] CloudInitError),
}

/// Limit of the sidecars that one error lists.
const MAX_LISTED: usize = 32;
/// Limit of the text of a sidecar's error that is passed on, in characters.
pub const MAX_MESSAGE_CHARS: usize = 4 << 10;

impl CallError {
    /// What a gRPC status means for a call whose answer may have `limit` bytes.
    pub(super) fn from_status(status: Status, limit: usize) -> Self {
        let has_source = std::error::Error::source(&status).is_some();
        match status.code() {
            // tonic has no code or type of its own for it.
            Code::OutOfRange if status.message().contains("message length too large") => {
                Self::TooLarge { limit }
            }
            // A source is an error of this side of the connection; the client's own timeout is left to its caller.
            _ if has_source && !is_client_timeout(&status) => Self::Broken(Box::new(status)),
            code => Self::Failed {
                code,
                message: excerpt(status.message(), MAX_MESSAGE_CHARS),
            },
        }
    }
}

fn is_client_timeout(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::TimeoutExpired>())
}

/// An error and its sources, outermost first.
fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The last source. Those of gRPC and HTTP/2 around it say less.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The names in a row, as many as a text may have.
pub(super) fn list(names: &[String]) -> String {
    match names.get(..MAX_LISTED) {
        Some(listed) if names.len() > MAX_LISTED => format!(
            "{}, and {} more",
            listed.join(", "),
            names.len().saturating_sub(MAX_LISTED)
        ),
        _ if names.is_empty() => "none".to_owned(),
        _ => names.join(", "),
    }
}
