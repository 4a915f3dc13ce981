//! gRPC calls to a sidecar. Each call has a connection of its own, a deadline and a size limit.

use std::path::Path;
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::cloud_init::CloudInitForms;
use super::error::HookCallError;
use super::sidecar::{HookPoint, Sidecar};
use api::proto::hooks::info::{InfoParams, InfoResult};
use api::proto::hooks::v1alpha3::{
    OnDefineDomainParams, OnDefineDomainResult, PreCloudInitIsoParams, ShutdownParams,
    ShutdownResult,
};
use domain::xml::MAX_BYTES;
use os::grpc::{self, ConnectError};

/// Size limit of a hook's answer, in bytes: domain XML and protobuf's overhead. A larger answer is
/// refused as soon as its length is known.
pub const MAX_ANSWER_BYTES: usize = MAX_BYTES + (64 << 10);
/// Size limit of the answer to `Info`, in bytes.
const MAX_INFO_BYTES: usize = 64 << 10;
/// If the sidecar cancels a call this shortly before the deadline, the call counts as timed out.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(100);

/// Makes a call on a connection of its own, with its deadline in the header `grpc-timeout`. The
/// answer has at most `limit` bytes.
///
/// # Errors
/// Any [`HookCallError`] except those about the content of an answer.
pub async fn call<Q: Message + 'static, A: Message + Default + 'static>(
    socket: &Path,
    method: String,
    message: Q,
    limit: usize,
    deadline: Instant,
) -> Result<A, HookCallError> {
    let after = deadline.saturating_duration_since(Instant::now());
    let answer = async {
        let mut client = Grpc::new(connect(socket).await?).max_decoding_message_size(limit);
        let broken = |error| HookCallError::Broken(Box::new(error));
        client.ready().await.map_err(broken)?;
        let mut request = Request::new(message);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let answer = match PathAndQuery::try_from(method) {
            Ok(path) => client.unary(request, path, ProstCodec::default()).await,
            Err(error) => Err(Status::internal(error.to_string())),
        };
        let answer = answer.map(tonic::Response::into_inner);
        answer.map_err(|status| HookCallError::from_status(status, limit))
    };
    match timeout_at(deadline, answer).await {
        Ok(Err(HookCallError::Failed { code, .. })) if is_timeout(code, deadline) => {
            Err(HookCallError::TimedOut { after })
        }
        Ok(result) => result,
        Err(_) => Err(HookCallError::TimedOut { after }),
    }
}

/// Whether the status means that the deadline has passed, which both sides watch. Long before the
/// deadline, these codes are errors of the sidecar.
fn is_timeout(code: Code, deadline: Instant) -> bool {
    matches!(code, Code::DeadlineExceeded | Code::Cancelled)
        && os::time::deadline(DEADLINE_TOLERANCE) >= deadline
}

/// Connects to a gRPC server on a unix socket.
///
/// # Errors
/// [`HookCallError::Unreachable`], or [`HookCallError::Broken`] if the other side does not speak HTTP/2.
pub async fn connect(socket: &Path) -> Result<Channel, HookCallError> {
    grpc::connect(socket).await.map_err(|error| match error {
        ConnectError::Connect(source) => HookCallError::Unreachable(source),
        ConnectError::Handshake(source) => HookCallError::Broken(Box::new(source)),
    })
}

pub async fn info(socket: &Path, deadline: Instant) -> Result<InfoResult, HookCallError> {
    let method = "/kubevirt.hooks.info.Info/Info".to_owned();
    call(socket, method, InfoParams {}, MAX_INFO_BYTES, deadline).await
}

/// Calls a method of `kubevirt.hooks.<version>.Callbacks`. A method has the same messages in all
/// versions that have it.
async fn hook<Q: Message + 'static, A: Message + Default + 'static>(
    sidecar: &Sidecar,
    point: HookPoint,
    message: Q,
    deadline: Instant,
) -> Result<A, HookCallError> {
    let method = format!("/kubevirt.hooks.{}.Callbacks/{point}", sidecar.version);
    call(&sidecar.socket, method, message, MAX_ANSWER_BYTES, deadline).await
}

/// Calls `OnDefineDomain` with the domain XML and the VMI's JSON. Does not check the answer.
pub async fn on_define_domain(
    sidecar: &Sidecar,
    domain_xml: Bytes,
    vmi: Bytes,
    deadline: Instant,
) -> Result<Bytes, HookCallError> {
    let message = OnDefineDomainParams { domain_xml, vmi };
    let answer = hook(sidecar, HookPoint::OnDefineDomain, message, deadline);
    answer
        .await
        .map(|answer: OnDefineDomainResult| answer.domain_xml)
}

/// Does not check the answer.
pub async fn pre_cloud_init_iso(
    sidecar: &Sidecar,
    data: CloudInitForms,
    vmi: Bytes,
    deadline: Instant,
) -> Result<CloudInitForms, HookCallError> {
    let message = PreCloudInitIsoParams {
        cloud_init_no_cloud_source: data.cloud_init_no_cloud_source,
        vmi,
        cloud_init_data: data.cloud_init_data,
    };
    hook(sidecar, HookPoint::PreCloudInitIso, message, deadline).await
}

/// Calls `Shutdown`. The program may end before it answers.
pub async fn shutdown(sidecar: &Sidecar, deadline: Instant) -> Result<(), HookCallError> {
    let called = hook(sidecar, HookPoint::Shutdown, ShutdownParams {}, deadline);
    match called.await {
        Ok(ShutdownResult {}) | Err(HookCallError::Broken(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
