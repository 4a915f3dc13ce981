//! KubeVirt Plugins (alpha): domain hooks that the cluster's administrator declares for all virtual machines.
//! virt-handler sends them with each sync.
//!
//! ```text
//!  plugins by name ─► condition ─► its hooks in order ─► condition ─┬─► CEL expression ─┬─► check ─► next
//!                                                                   └─► gRPC sidecar ───┘
//! ```
//!
//! For authors of expressions: `cel`, and its tables of types `cel/libvirtxml.txt` and `cel/vmi.txt`. Of sidecars: `sidecar`.

mod cel;
mod config;
mod context;
mod error;
mod pipeline;
mod sidecar;

pub use cel::{CompileError, EvaluationError, ExpressionError, MergeError, MergeReason};
pub use config::TimeoutError;
pub use context::InvocationContext;
pub use error::{PluginError, PluginHookError, SidecarError};
pub use pipeline::{Applied, Pipeline};

#[cfg(test)]
mod tests;
