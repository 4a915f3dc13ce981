//! KubeVirt Plugins (alpha): domain hooks that the cluster's administrator declares for all virtual
//! machines. virt-handler sends them with each sync.
//!
//! ```text
//!  plugins by name ─► condition ─► its hooks in order ─► condition ─┬─► CEL expression ─┬─► check ─► next
//!                                                                   └─► gRPC sidecar ───┘
//! ```
//!
//! Another program evaluates expressions (`evaluator`): `crates/cel-evaluator`, with the tables of
//! types `libvirtxml.txt` and `vmi.txt`. `sidecar` calls the sidecars of plugins.

mod config;
mod context;
mod error;
mod evaluator;
mod pipeline;
mod sidecar;

pub use config::TimeoutError;
pub use context::InvocationContext;
pub use error::{PluginError, PluginHookError, SidecarError};
pub use evaluator::ExpressionError;
pub use pipeline::{Applied, Pipeline};

#[cfg(test)]
mod tests;
