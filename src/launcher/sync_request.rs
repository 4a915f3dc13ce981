use std::sync::Arc;

use prost::bytes::Bytes;
use tokio::time::Instant;

use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use hooks::RequestId;
use hooks::plugins::Pipeline;

/// The input of a sync: the decoded VMI of a call, and its options.
#[derive(Debug, Clone)]
pub struct SyncRequest {
    /// The VMI as the launcher reads it.
    pub vmi: Arc<Vmi>,
    /// The VMI as received; sidecars get these bytes.
    pub vmi_json: Bytes,
    /// virt-handler's information on the node and the cluster.
    pub options: Arc<VirtualMachineOptions>,
    pub plugins: Pipeline,
    /// By which the sidecars know it again.
    pub id: RequestId,
    /// When all hooks must have answered: `HOOKS_TIMEOUT` after the call arrived, whether it waited
    /// for its turn or not.
    pub hooks_deadline: Instant,
}
