//! KubeVirt Plugins (alpha): domain hooks that the cluster's administrator declares for all virtual
//! machines. virt-handler sends them with each sync.
//!
//! ```text
//!  plugins by name ─► condition ─► its hooks in order ─► condition ─┬─► CEL expression ─┬─► check ─► next
//!                                                                   └─► gRPC sidecar ───┘
//! ```
//!
//! Expressions are evaluated by another program (`evaluator`); for their authors:
//! `crates/cel-evaluator`, and its tables of types `libvirtxml.txt` and `vmi.txt`. For authors of
//! sidecars: `sidecar`.

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
