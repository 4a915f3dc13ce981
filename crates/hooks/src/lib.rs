//! Hook sidecars and plugins: they may change a virtual machine before it starts.
//!
//! ```text
//!  hook sidecars   containers of the pod, named by the VMI's annotation hooks.kubevirt.io/hookSidecars;
//!                  gRPC services kubevirt.hooks.* on sockets in /var/run/kubevirt-hooks     [`Sidecars`]
//!  plugins         declared for the whole cluster, sent by virt-handler with each sync:
//!                  CEL expressions, or gRPC services in /var/run/kubevirt-plugin            [`plugins`]
//!
//!  domain XML ──► hook sidecars by priority ──► plugins by name ──► libvirt
//! ```
//!
//! Neither is trusted: every call has limits of time and size, and every answer is checked
//! ([`answer`]) on a thread of its own (`work`). Answers travel as text, so elements that this
//! launcher does not know reach libvirt unchanged. The log and `launcherctl launcher hooks`
//! ([`Report`]) show what each hook changed.
//!
//! Sidecar authors use `docs/sidecars.md`, [`dry_run`] (`launcherctl launcher hooks try`) and
//! [`conformance`] (`hooks check`).
#![forbid(unsafe_code)]

pub mod answer;
mod client;
mod cloud_init;
pub mod conformance;
mod current_call;
pub mod diff;
mod discovery;
pub mod dry_run;
mod error;
pub mod plugins;
mod report;
mod sidecar;
mod sidecars;
mod timeout;
mod work;

pub use answer::AnswerError;
pub use cloud_init::CloudInitError;
pub use current_call::CurrentCall;
pub use diff::{Change, Changes};
pub use error::{HookCallError, HookError, UnusableReason};
pub use report::{CallReport, HookPointReport, Report, SidecarReport};
pub use sidecar::{HookPoint, Sidecar, Version};
pub use sidecars::{RequestId, Sidecars};
pub use timeout::HOOKS_TIMEOUT;
pub use work::WorkError;
