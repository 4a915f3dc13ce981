//! The shim's gRPC services: Info, and the callbacks of all three versions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::program;
use api::proto::hooks::{info, v1alpha1, v1alpha2, v1alpha3};
use hooks::{HookPoint, Version};

const ON_DEFINE_DOMAIN: &str = "onDefineDomain";
const PRE_CLOUD_INIT_ISO: &str = "preCloudInitIso";
/// Limit of a request, which has a VMI and a domain.
const MAX_REQUEST_BYTES: usize = 16 << 20;

#[derive(Debug, Clone)]
struct Shim {
    version: Version,
    shutdown: Arc<Notify>,
}

/// Serves until `stop` resolves; then running calls get `last_calls` to finish.
///
/// # Errors
/// The socket fails.
pub async fn serve(
    listener: UnixListener,
    version: Version,
    shutdown: Arc<Notify>,
    stop: impl Future<Output = ()>,
    last_calls: Duration,
) -> Result<(), tonic::transport::Error> {
    let shim = Shim { version, shutdown };
    let stopping = Arc::new(Notify::new());
    let stopped = Arc::clone(&stopping);
    let services = Routes::default()
        .add_service(info::info_server::InfoServer::new(shim.clone()))
        .add_service(
            v1alpha1::callbacks_server::CallbacksServer::new(shim.clone())
                .max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(
            v1alpha2::callbacks_server::CallbacksServer::new(shim.clone())
                .max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(
            v1alpha3::callbacks_server::CallbacksServer::new(shim)
                .max_decoding_message_size(MAX_REQUEST_BYTES),
        );
    let mut serving = pin!(os::grpc::serve(services, listener, async move {
        stopped.notified().await
    }));
    tokio::select! {
        served = &mut serving => return served,
        () = stop => stopping.notify_one(),
    }
    tokio::time::timeout(last_calls, serving)
        .await
        .unwrap_or(Ok(()))
}

impl Shim {
    /// The hook points that have a program, and Shutdown, which ends the shim itself.
    fn points(&self) -> Vec<info::HookPoint> {
        let program = |(point, name): (HookPoint, &'static str)| match program::find(name) {
            Some(_) => Some(point),
            None => {
                tracing::info!("Info: {name} has not been found");
                None
            }
        };
        let programs = [
            (HookPoint::OnDefineDomain, ON_DEFINE_DOMAIN),
            (HookPoint::PreCloudInitIso, PRE_CLOUD_INIT_ISO),
        ];
        let shutdown = (HookPoint::Shutdown.since() <= self.version).then_some(HookPoint::Shutdown);
        let points = shutdown
            .into_iter()
            .chain(programs.into_iter().filter_map(program));
        points
            .map(|point| info::HookPoint {
                name: point.name().to_owned(),
                priority: 0,
            })
            .collect()
    }

    async fn define(&self, vmi: &[u8], domain: &[u8]) -> Result<Bytes, Status> {
        tracing::info!("OnDefineDomain method has been called");
        let domain = text("domain", domain)?;
        ran(
            ON_DEFINE_DOMAIN,
            program::run(
                ON_DEFINE_DOMAIN,
                ["--vmi", json("VMI", vmi)?, "--domain", domain],
            )
            .await,
        )
    }

    async fn cloud_init(&self, vmi: &[u8], data: &[u8]) -> Result<Bytes, Status> {
        tracing::info!("PreCloudInitIso method has been called");
        let data = json("cloud-init data", data)?;
        ran(
            PRE_CLOUD_INIT_ISO,
            program::run(
                PRE_CLOUD_INIT_ISO,
                ["--vmi", json("VMI", vmi)?, "--cloud-init", data],
            )
            .await,
        )
    }
}

fn ran(name: &str, result: Result<Vec<u8>, program::ProgramError>) -> Result<Bytes, Status> {
    match result {
        Ok(printed) => Ok(printed.into()),
        Err(error) => {
            tracing::error!(reason = %os::logging::chain(&error), "{name} failed");
            Err(Status::unknown(os::logging::chain(&error)))
        }
    }
}

fn text<'a>(what: &str, given: &'a [u8]) -> Result<&'a str, Status> {
    std::str::from_utf8(given)
        .map_err(|error| Status::invalid_argument(format!("the {what} is not UTF-8: {error}")))
}

/// Checks that the text is a JSON object: programs should get nothing else.
fn json<'a>(what: &str, given: &'a [u8]) -> Result<&'a str, Status> {
    let object: Result<serde_json::Map<String, serde_json::Value>, _> =
        serde_json::from_slice(given);
    object
        .map_err(|error| Status::invalid_argument(format!("the {what} cannot be read: {error}")))?;
    text(what, given)
}

#[tonic::async_trait]
impl info::info_server::Info for Shim {
    async fn info(
        &self,
        _: Request<info::InfoParams>,
    ) -> Result<Response<info::InfoResult>, Status> {
        tracing::info!("Info method has been called");
        let versions = vec![self.version.name().to_owned()];
        Ok(Response::new(info::InfoResult {
            name: "shim".to_owned(),
            hook_points: self.points(),
            versions,
        }))
    }
}

/// Implements one version's callbacks; later versions added the optional parts.
macro_rules! callbacks {
    ($package:ident, [$($cloud_init:ident)?], [$($shutdown:ident)?]) => {
        #[tonic::async_trait]
        impl $package::callbacks_server::Callbacks for Shim {
            async fn on_define_domain(
                &self,
                request: Request<$package::OnDefineDomainParams>,
            ) -> Result<Response<$package::OnDefineDomainResult>, Status> {
                let given = request.into_inner();
                let domain_xml = self.define(&given.vmi, &given.domain_xml).await?;
                Ok(Response::new($package::OnDefineDomainResult { domain_xml }))
            }
            $(async fn $cloud_init(
                &self,
                request: Request<$package::PreCloudInitIsoParams>,
            ) -> Result<Response<$package::PreCloudInitIsoResult>, Status> {
                let given = request.into_inner();
                let cloud_init_data = self.cloud_init(&given.vmi, &given.cloud_init_data).await?;
                Ok(Response::new($package::PreCloudInitIsoResult { cloud_init_data, ..Default::default() }))
            })?
            $(async fn $shutdown(&self, _: Request<$package::ShutdownParams>) -> Result<Response<$package::ShutdownResult>, Status> {
                tracing::info!("Hook's Shutdown callback method has been called");
                self.shutdown.notify_one();
                Ok(Response::new($package::ShutdownResult {}))
            })?
        }
    };
}
callbacks!(v1alpha1, [], []);
callbacks!(v1alpha2, [pre_cloud_init_iso], []);
callbacks!(v1alpha3, [pre_cloud_init_iso], [shutdown]);
