//! KubeVirt Plugins (alpha): hooks that the cluster's administrator declares for all virtual
//! machines. virt-handler sends them with each sync.
//!
//! ```text
//!  plugins by name ─► condition ─► its hooks in order ─► condition ─┬─► CEL expression ─┬─► check ─► next
//!                                                                   └─► gRPC sidecar ───┘
//! ```
//!
//! v1.9 has `domainHooks`. v1.10 has `launcherHooks` in their place, which name their points
//! (`point`): `GuestDefinition` is what a domain hook is, `PreBoot` changes files (`boot`,
//! `boot_files`), `PreMigrationSource` the settings of a migration (`migration`, `settings`). A
//! list without `launcherHooks` never reaches any of these.
//!
//! `launcherctl` calls an author's plugin by the same code ([`conformance`](crate::conformance)).
//!
//! Another program evaluates expressions (`evaluator`): `crates/cel-evaluator`, with the tables of
//! types `libvirtxml.txt` and `vmi.txt`. `sidecar` calls the sidecars of plugins.

mod boot;
mod boot_files;
mod config;
mod context;
mod error;
mod evaluator;
mod known;
mod migration;
mod pipeline;
mod point;
mod selection;
mod settings;
mod sidecar;

pub use boot_files::{BootFile, BootFileError, BootFileKind};
pub use config::TimeoutError;
pub use context::InvocationContext;
pub use error::{PluginError, PluginHookError, SidecarError};
pub use evaluator::EvaluatorError;
pub use known::KnownPlugins;
pub use pipeline::{Applied, Pipeline};
pub use point::LauncherHookPoint;
pub use settings::SettingsError;
pub(crate) use settings::changes as settings_changes;
pub(crate) use sidecar::definition;

#[cfg(test)]
mod tests;
