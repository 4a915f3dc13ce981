//! The hook sidecar that adds the cards to the domain, as a network binding plugin does.

use std::path::PathBuf;

use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::HostNetwork;
use super::xml::add_cards;
use crate::files::{FileError, listen};
use crate::host::vm_dir::VmDir;
use api::pod_paths::HOOKS_DIR;
use api::proto::hooks::info::info_server::{Info, InfoServer};
use api::proto::hooks::info::{HookPoint as Subscription, InfoParams, InfoResult};
use api::proto::hooks::v1alpha1::callbacks_server::{Callbacks, CallbacksServer};
use api::proto::hooks::v1alpha1::{OnDefineDomainParams, OnDefineDomainResult};
use client::refusal::NETWORK_SIDECAR;
use hooks::{HookPoint, Version};

/// Limit of a request: a VMI and a domain.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The sidecar's socket.
pub fn socket(dir: &VmDir) -> PathBuf {
    dir.path(HOOKS_DIR).join(format!("{NETWORK_SIDECAR}.sock"))
}

/// Serves the sidecar below the VM's root until this process ends.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(network: HostNetwork, dir: &VmDir) -> Result<(), FileError> {
    let hooks = dir.path(HOOKS_DIR);
    std::fs::create_dir_all(&hooks).map_err(FileError::on("make", &hooks))?;
    let listener = listen(&socket(dir))?;
    let sidecar = Sidecar(network);
    let services = Routes::default()
        .add_service(InfoServer::new(sidecar.clone()))
        .add_service(CallbacksServer::new(sidecar).max_decoding_message_size(MAX_REQUEST_BYTES));
    tokio::spawn(os::grpc::serve(services, listener, std::future::pending()));
    Ok(())
}

#[derive(Debug, Clone)]
struct Sidecar(HostNetwork);

#[tonic::async_trait]
impl Info for Sidecar {
    async fn info(&self, _: Request<InfoParams>) -> Result<Response<InfoResult>, Status> {
        Ok(Response::new(InfoResult {
            name: NETWORK_SIDECAR.to_owned(),
            hook_points: vec![Subscription {
                name: HookPoint::OnDefineDomain.name().to_owned(),
                priority: 0,
            }],
            // It does not need what later versions added.
            versions: vec![Version::V1alpha1.name().to_owned()],
        }))
    }
}

#[tonic::async_trait]
impl Callbacks for Sidecar {
    async fn on_define_domain(
        &self,
        request: Request<OnDefineDomainParams>,
    ) -> Result<Response<OnDefineDomainResult>, Status> {
        let domain = String::from_utf8_lossy(&request.get_ref().domain_xml).into_owned();
        let changed = add_cards(&self.0, &domain)
            .ok_or_else(|| Status::invalid_argument("this is not a domain with devices"))?;
        Ok(Response::new(OnDefineDomainResult {
            domain_xml: changed.into_bytes().into(),
        }))
    }
}
