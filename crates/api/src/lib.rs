//! The KubeVirt API as a launcher sees it: the VMI that virt-handler sends, the gRPC messages,
//! clients and servers generated from `proto/`, the paths of the pod, and the names of its links.
#![forbid(unsafe_code)]

mod action;
pub mod backup;
pub mod json;
pub mod link_names;
pub mod migration_options;
pub mod pod_paths;
pub mod proto;
pub mod vmi;

pub use action::Action;

/// In the launcher's answer to a call that goes on in the background: a client may send it again.
pub const STILL_IN_PROGRESS: &str = "is still in progress";
