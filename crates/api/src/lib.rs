//! The KubeVirt API as a launcher sees it: the VMI that virt-handler sends, and the gRPC messages, clients and servers
//! generated from `proto/`.
#![forbid(unsafe_code)]

mod action;
pub mod proto;
pub mod vmi;

pub use action::Action;
