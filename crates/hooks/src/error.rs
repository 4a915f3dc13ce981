//! Why a hook failed. Every text names the sidecar, so that users know whose author to ask.

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

#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error(
        "{count} of {expected} hook sidecars are ready within the time limit; ready: {}; not ready: {}",
        list(ready),
        list(not_ready)
    )]
    NotReady {
        /// The number of sidecars that the pod has.
        expected: usize,
        /// The number of ready ones. A sidecar may have several sockets.
        count: usize,
        /// Name and socket of each ready one.
        ready: Vec<String>,
        /// Every other file in the hooks directory, with the reason why it is not ready.
        not_ready: Vec<String>,
    },
    #[error("the directory of the hook sidecars' sockets, {}, cannot be read", dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    /// A sidecar that cannot work with this launcher.
    #[error("hook sidecar {sidecar} cannot be used")]
    Unusable {
        sidecar: String,
        #[source]
        reason: UnusableReason,
    },
    /// A call failed, or its answer is refused.
    #[error("hook sidecar {sidecar}: {point}")]
    Call {
        sidecar: String,
        point: HookPoint,
        #[source]
        reason: HookCallError,
    },
    /// The domain XML for the first sidecar cannot be read. The cause is not a sidecar.
    #[error("the domain XML for the hook sidecars cannot be read")]
    Input(#[source] ReadError),
    /// Reading the domain XML for the first sidecar did not finish. The cause is not a sidecar.
    #[error("the data for the hook sidecars could not be prepared")]
    Work(#[from] WorkError),
}

#[derive(Debug, thiserror::Error)]
pub enum UnusableReason {
    /// The sidecar and this launcher have no protocol version in common.
    #[error("it offers the versions {}; this launcher supports {:?}", list(offered), Version::ALL.map(Version::name))]
    Versions { offered: Vec<String> },
    /// The gRPC server has no service `Info`.
    #[error("it does not serve kubevirt.hooks.info.Info: {message}")]
    NoInfoService { message: String },
}

#[derive(Debug, thiserror::Error)]
pub enum HookCallError {
    /// Nothing accepts connections on the socket.
    #[error("cannot be reached: {0}; has its container ended?")]
    Unreachable(io::Error),
    #[error("no answer within {}", display_limit(*after))]
    TimedOut {
        /// The call's time limit.
        after: Duration,
    },
    #[error("the connection broke before the answer arrived: {}", root_cause(.0.as_ref()))]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// The sidecar answered with an error.
    #[error("failed{}: {}{}", status(*code), if message.trim().is_empty() { "it gave no reason" } else { message }, unserved(*code))]
    Failed {
        code: Code,
        /// The sidecar's text, at most [`MAX_MESSAGE_CHARS`].
        message: String,
    },
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("the answer could not be checked")]
    Work(#[from] WorkError),
    #[error("the answer is not cloud-init data")]
    CloudInit(#[from] CloudInitError),
}

/// The gRPC status for the error's text. A failed script has only `Unknown`, which says nothing.
fn status(code: Code) -> String {
    match code {
        Code::Unknown => String::new(),
        code => format!(" with {code:?}"),
    }
}

/// What it means that the sidecar does not know a method.
fn unserved(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => {
            "; its Info offers a version whose service Callbacks it does not serve"
        }
        _ => "",
    }
}

/// Limit of the sidecars listed in an error.
const MAX_LISTED: usize = 32;
/// Limit of a sidecar's error text, in characters.
pub const MAX_MESSAGE_CHARS: usize = 4 << 10;

impl HookCallError {
    /// Translates a gRPC status. `limit` is the size limit of the answer, in bytes.
    pub(super) fn from_status(status: Status, limit: usize) -> Self {
        let has_source = std::error::Error::source(&status).is_some();
        match status.code() {
            // tonic has no code or type for this error, so the text tells.
            Code::OutOfRange if status.message().contains("message length too large") => {
                Self::TooLarge { limit }
            }
            // A status with a source comes from this side. The caller handles its own timeout.
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

/// The innermost source, which says more than the gRPC and HTTP/2 errors around it.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The names in one line, at most [`MAX_LISTED`].
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
