//! What a sync is asked for.

use std::sync::Arc;

use prost::bytes::Bytes;
use tokio::time::Instant;

use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use hooks::plugins::Pipeline;

/// A VMI that a call brought, decoded, with all that comes with it: what the domain is to be.
#[derive(Debug, Clone)]
pub struct SyncRequest {
    /// The VMI, which is the one of this launcher.
    pub vmi: Arc<Vmi>,
    /// The VMI as it came, which is what sidecars get.
    pub vmi_json: Bytes,
    /// What virt-handler knows of the node and the cluster.
    pub options: Arc<VirtualMachineOptions>,
    /// The plugins of the options.
    pub plugins: Pipeline,
    /// When virt-handler stops waiting; sidecars get a share of what is left.
    pub deadline: Instant,
}
