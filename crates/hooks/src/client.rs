//! gRPC calls to a sidecar. Each call has a connection of its own, a deadline and a size limit.

use std::path::Path;
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::cloud_init::CloudInitForms;
use super::error::CallError;
use super::sidecar::{Sidecar, Version};
use api::proto::hooks::info::{InfoParams, InfoResult, info_client::InfoClient};
use api::proto::hooks::{v1alpha1, v1alpha2, v1alpha3};
use domain::xml::MAX_BYTES;
use os::grpc::{self, ConnectError};

/// Size limit of a hook's answer, in bytes: domain XML and protobuf's overhead. A larger answer is
/// refused as soon as its length is known.
pub const MAX_ANSWER_BYTES: usize = MAX_BYTES + (64 << 10);
/// Size limit of the answer to `Info`, in bytes.
const MAX_INFO_BYTES: usize = 64 << 10;
/// If the sidecar cancels a call this shortly before the deadline, the call counts as timed out.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(100);

/// Waits for a call until its deadline.
///
/// # Errors
/// The call's own error, or [`CallError::TimedOut`].
pub async fn until_deadline<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let after = deadline.saturating_duration_since(Instant::now());
    match timeout_at(deadline, call).await {
        Ok(Err(CallError::Failed { code, .. })) if is_timeout(code, deadline) => {
            Err(CallError::TimedOut { after })
        }
        Ok(result) => result,
        Err(_) => Err(CallError::TimedOut { after }),
    }
}

/// Whether the sidecar reports the deadline, which both sides watch. Long before the deadline,
/// these codes are errors of the sidecar.
fn is_timeout(code: Code, deadline: Instant) -> bool {
    matches!(code, Code::DeadlineExceeded | Code::Cancelled)
        && os::time::deadline(DEADLINE_TOLERANCE) >= deadline
}

/// Connects to a gRPC server on a unix socket.
///
/// # Errors
/// [`CallError::Unreachable`], or [`CallError::Broken`] if the other side does not speak HTTP/2.
pub async fn connect(socket: &Path) -> Result<Channel, CallError> {
    grpc::connect(socket).await.map_err(|error| match error {
        ConnectError::Connect(source) => CallError::Unreachable(source),
        ConnectError::Handshake(source) => CallError::Broken(Box::new(source)),
    })
}

/// A request that carries its deadline in the header `grpc-timeout`.
pub fn request<T>(message: T, deadline: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

/// Calls `kubevirt.hooks.info.Info/Info`.
pub async fn info(socket: &Path, deadline: Instant) -> Result<InfoResult, CallError> {
    until_deadline(deadline, async {
        let mut client =
            InfoClient::new(connect(socket).await?).max_decoding_message_size(MAX_INFO_BYTES);
        let answer = client.info(request(InfoParams {}, deadline)).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| CallError::from_status(status, MAX_INFO_BYTES))
    })
    .await
}

/// Calls a method of `kubevirt.hooks.<version>.Callbacks`. Each version has its own message types
/// with the same fields.
macro_rules! call {
    ($version:ident.$method:ident($params:ident $fields:tt), $sidecar:expr, $deadline:expr) => {
        $version::callbacks_client::CallbacksClient::new(connect(&$sidecar.socket).await?)
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .$method(request($version::$params $fields, $deadline))
            .await
            .map_err(|status| CallError::from_status(status, MAX_ANSWER_BYTES))?
            .into_inner()
    };
}

/// Calls `OnDefineDomain` with the domain XML and the VMI's JSON. Does not check the answer.
pub async fn on_define_domain(
    sidecar: &Sidecar,
    domain_xml: Bytes,
    vmi: Bytes,
    deadline: Instant,
) -> Result<Bytes, CallError> {
    #[rustfmt::skip]
    let call = async {
        Ok(match sidecar.version {
            Version::V1alpha1 => call!(v1alpha1.on_define_domain(OnDefineDomainParams { domain_xml, vmi }), sidecar, deadline).domain_xml,
            Version::V1alpha2 => call!(v1alpha2.on_define_domain(OnDefineDomainParams { domain_xml, vmi }), sidecar, deadline).domain_xml,
            Version::V1alpha3 => call!(v1alpha3.on_define_domain(OnDefineDomainParams { domain_xml, vmi }), sidecar, deadline).domain_xml,
        })
    };
    until_deadline(deadline, call).await
}

/// Calls `PreCloudInitIso`, which v1alpha2 added. Does not check the answer.
pub async fn pre_cloud_init_iso(
    sidecar: &Sidecar,
    data: CloudInitForms,
    vmi: Bytes,
    deadline: Instant,
) -> Result<CloudInitForms, CallError> {
    let CloudInitForms {
        cloud_init_data,
        cloud_init_no_cloud_source,
    } = data;
    #[rustfmt::skip]
    let call = async {
        let (cloud_init_data, cloud_init_no_cloud_source) = match sidecar.version {
            Version::V1alpha1 => return Err(unimplemented(sidecar.version)),
            Version::V1alpha2 => {
                let answer = call!(v1alpha2.pre_cloud_init_iso(PreCloudInitIsoParams { cloud_init_no_cloud_source, vmi, cloud_init_data }), sidecar, deadline);
                (answer.cloud_init_data, answer.cloud_init_no_cloud_source)
            }
            Version::V1alpha3 => {
                let answer = call!(v1alpha3.pre_cloud_init_iso(PreCloudInitIsoParams { cloud_init_no_cloud_source, vmi, cloud_init_data }), sidecar, deadline);
                (answer.cloud_init_data, answer.cloud_init_no_cloud_source)
            }
        };
        Ok(CloudInitForms { cloud_init_data, cloud_init_no_cloud_source })
    };
    until_deadline(deadline, call).await
}

/// Calls `Shutdown`, which v1alpha3 added.
pub async fn shutdown(sidecar: &Sidecar, deadline: Instant) -> Result<(), CallError> {
    until_deadline(deadline, async {
        match sidecar.version {
            Version::V1alpha1 | Version::V1alpha2 => Err(unimplemented(sidecar.version)),
            Version::V1alpha3 => {
                call!(v1alpha3.shutdown(ShutdownParams {}), sidecar, deadline);
                Ok(())
            }
        }
    })
    .await
}

fn unimplemented(version: Version) -> CallError {
    CallError::Failed {
        code: Code::Unimplemented,
        message: format!("{version} does not have this hook"),
    }
}
