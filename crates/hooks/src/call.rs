//! Calls over a sidecar's socket, each on a connection of its own, each bounded in time and size.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::error::CallError;
use super::sidecar::{Sidecar, Version};
use api::proto::hooks::{info, v1alpha1, v1alpha2, v1alpha3};
use domain::xml::MAX_BYTES;

/// Largest answer that is received; it is refused when its length is known, not when it is there.
pub const MAX_ANSWER: usize = MAX_BYTES + (64 << 10);
/// Largest answer of `Info`.
const MAX_INFO: usize = 64 << 10;
/// Largest headers and trailers of an answer; an error's text is in them.
const MAX_HEADERS: u32 = 1 << 20;
/// Longest text of an error that is passed on, in characters.
const MAX_WORDS: usize = 4 << 10;
/// A sidecar that gives up this shortly before the call must be over has done so because of that.
const NEARLY: Duration = Duration::from_millis(100);
/// Longest time for one callback, also where the request would leave more.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// Runs a call against the clock.
///
/// # Errors
/// That of the call, or that the time is over.
pub async fn bounded<T>(
    until: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let start = Instant::now();
    match timeout_at(until, call).await {
        Ok(Err(CallError::TimedOut { .. })) | Err(_) => Err(CallError::TimedOut {
            after: start.elapsed(),
        }),
        Ok(Err(CallError::Failed { code, .. }))
            if is_late(&code) && os::time::deadline(NEARLY) >= until =>
        {
            Err(CallError::TimedOut {
                after: start.elapsed(),
            })
        }
        Ok(done) => done,
    }
}

/// Codes with which the other side gives a call up when its time is over; it may also mean a call of its own.
fn is_late(code: &str) -> bool {
    code == format!("{:?}", Code::DeadlineExceeded) || code == format!("{:?}", Code::Cancelled)
}

/// A connection to the socket.
///
/// # Errors
/// [`CallError::Unreachable`].
pub async fn connect(socket: &Path) -> Result<Channel, CallError> {
    let path = socket.to_path_buf();
    // The address is not used: the connector opens the socket. "localhost" is what gRPC calls it.
    Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(MAX_HEADERS)
        .connect_with_connector(tower::service_fn(move |_| {
            let path = path.clone();
            async move { dial(&path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(|error| CallError::Unreachable(innermost(&error)))
}

/// Connects, also where the path is longer than the 107 bytes that a socket's address holds.
async fn dial(path: &Path) -> std::io::Result<UnixStream> {
    if path.as_os_str().len() < 108 {
        return UnixStream::connect(path).await;
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return UnixStream::connect(path).await;
    };
    let directory = std::fs::File::open(parent)?;
    let short = PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&directory)
    ))
    .join(name);
    UnixStream::connect(short).await
}

/// Asks who is there.
///
/// # Errors
/// Those of the call.
pub async fn info(socket: &Path, until: Instant) -> Result<info::InfoResult, CallError> {
    bounded(until, async {
        let mut client = info::info_client::InfoClient::new(connect(socket).await?)
            .max_decoding_message_size(MAX_INFO);
        let answer = client
            .info(request(info::InfoParams {}, until))
            .await
            .map_err(|status| failed(&status, MAX_INFO))?;
        Ok(answer.into_inner())
    })
    .await
}

/// A request that tells the other side how long it has.
pub fn request<T>(message: T, until: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(until.saturating_duration_since(Instant::now()));
    request
}

/// One callback in the sidecar's version of the protocol.
macro_rules! callback {
    ($sidecar:expr, $until:expr, $method:ident($params:ident $fields:tt), [$($version:ident $package:ident),*]) => {
        match $sidecar.version {
            $(Version::$version => {
                let channel = connect(&$sidecar.socket).await?;
                let mut client = $package::callbacks_client::CallbacksClient::new(channel).max_decoding_message_size(MAX_ANSWER);
                let message = $package::$params $fields;
                client.$method(request(message, $until)).await.map_err(|status| failed(&status, MAX_ANSWER))?.into_inner().into()
            })*
            #[allow(unreachable_patterns, reason = "which versions have the callback differs")]
            _ => return Err(CallError::Failed { code: Code::Unimplemented.to_string(), message: $sidecar.version.to_string() }),
        }
    };
}

/// `OnDefineDomain`.
///
/// # Errors
/// Those of the call; the answer is not looked at.
pub async fn on_define_domain(
    sidecar: &Sidecar,
    xml: Bytes,
    vmi: Bytes,
    until: Instant,
) -> Result<Bytes, CallError> {
    let answer: Domain = bounded(until, async {
        Ok(callback!(
            sidecar,
            until,
            on_define_domain(OnDefineDomainParams { domain_xml: xml, vmi }),
            [V1alpha1 v1alpha1, V1alpha2 v1alpha2, V1alpha3 v1alpha3]
        ))
    })
    .await?;
    Ok(answer.0)
}

/// The two forms in which cloud-init data travels.
#[derive(Debug, Clone, Default)]
pub struct CloudInit {
    /// All of it, in the reference's names.
    pub data: Bytes,
    /// User and network data as a `CloudInitNoCloudSource`, for sidecars from before v1alpha2.
    pub no_cloud: Bytes,
}

/// `PreCloudInitIso`.
///
/// # Errors
/// Those of the call; the answer is not looked at.
pub async fn pre_cloud_init_iso(
    sidecar: &Sidecar,
    given: CloudInit,
    vmi: Bytes,
    until: Instant,
) -> Result<CloudInit, CallError> {
    bounded(until, async {
        Ok(callback!(
            sidecar,
            until,
            pre_cloud_init_iso(PreCloudInitIsoParams { cloud_init_no_cloud_source: given.no_cloud, vmi, cloud_init_data: given.data }),
            [V1alpha2 v1alpha2, V1alpha3 v1alpha3]
        ))
    })
    .await
}

/// `Shutdown`.
///
/// # Errors
/// Those of the call.
pub async fn shutdown(sidecar: &Sidecar, until: Instant) -> Result<(), CallError> {
    let _: Done = bounded(until, async {
        Ok(callback!(sidecar, until, shutdown(ShutdownParams {}), [V1alpha3 v1alpha3]))
    })
    .await?;
    Ok(())
}

struct Domain(Bytes);
struct Done;
macro_rules! answers {
    ($($package:ident),*) => {$(
        impl From<$package::OnDefineDomainResult> for Domain {
            fn from(answer: $package::OnDefineDomainResult) -> Self { Self(answer.domain_xml) }
        }
    )*};
}
answers!(v1alpha1, v1alpha2, v1alpha3);
impl From<v1alpha2::PreCloudInitIsoResult> for CloudInit {
    fn from(answer: v1alpha2::PreCloudInitIsoResult) -> Self {
        Self {
            data: answer.cloud_init_data,
            no_cloud: answer.cloud_init_no_cloud_source,
        }
    }
}
impl From<v1alpha3::PreCloudInitIsoResult> for CloudInit {
    fn from(answer: v1alpha3::PreCloudInitIsoResult) -> Self {
        Self {
            data: answer.cloud_init_data,
            no_cloud: answer.cloud_init_no_cloud_source,
        }
    }
}
impl From<v1alpha3::ShutdownResult> for Done {
    fn from(_: v1alpha3::ShutdownResult) -> Self {
        Self
    }
}

/// What a status says: the sidecar's own failure, or one of the connection.
pub fn failed(status: &Status, limit: usize) -> CallError {
    match status.code() {
        // The client's own clock; it ends with the call's.
        Code::Cancelled if status.source().is_some() && status.message() == "Timeout expired" => {
            CallError::TimedOut {
                after: Duration::ZERO,
            }
        }
        Code::OutOfRange if status.message().contains("message length too large") => {
            CallError::TooLarge { limit }
        }
        _ if status.source().is_some() => {
            CallError::Broken(status.source().map(innermost).unwrap_or_default())
        }
        code => CallError::Failed {
            code: format!("{code:?}"),
            message: cut(status.message()),
        },
    }
}

fn cut(text: &str) -> String {
    let end = text.char_indices().nth(MAX_WORDS).map(|(end, _)| end);
    match end.and_then(|end| text.get(..end)) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}

/// The last cause, which says what really happened.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
