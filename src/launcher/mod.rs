//! The domain manager: decides the order of operations on the one domain; its modules carry them
//! out.
//!
//! ```text
//!   sync ──► one at a time ──► decide ──► start (a job) ─► define, start  ┐
//!                                   └───► apply ──► disks, interfaces, …  ├──► libvirt
//!   pause, shutdown, kill, … ──► admitted by phase and job ───────────────┘       │
//!   GetDomain ──► a read of libvirt, else the published snapshot ◄────────────────┤
//!   virt-handler ◄── notify ◄── document ◄── Vm ◄── report ◄── events ◄───────────┘
//! ```
//!
//! * [`vm::Vm`] owns the state. Which request runs in which phase and beside which job is a table
//!   (`vm/admission.rs`).
//! * Most changes of the domain take turns (`InTurn` in `vm/admission.rs`, and a job's own steps);
//!   a turn ends with the change, even if the caller has given up. Reads change nothing and wait
//!   for no job. Kill is always admitted and waits for no other change but a kill.
//! * libvirt's calls block, so each runs on a blocking thread. Each for which virt-handler waits
//!   has a deadline below its own.
//! * virt-handler sees no domain until its start has returned.

mod admit;
mod apply;
mod attestation;
mod backup;
mod config;
mod conversion;
mod error;
mod guest_agent;
mod inspect;
mod libvirt_domain;
mod memory_dump;
mod metadata_copy;
mod metrics;
mod migration_source;
mod migration_target;
mod pod_backend;
mod pod_network;
mod qemu;
mod reads;
mod removals;
mod report;
mod requests;
mod start;
mod statistics;
mod sync;
mod sync_request;
#[cfg(test)]
pub(crate) mod tests;
mod timeline;
mod vm;
mod warnings;
mod wiring;

pub use attestation::{LaunchSecret, SevError};
pub use config::LauncherConfig;
pub use error::LauncherError;
pub use guest_agent::GuestCommand;
pub(crate) use libvirt_domain::CHANGE_TIMEOUT;
pub use migration_source::MigrateRequest;
pub use migration_source::error::MigrationError;
pub use qemu::find_qemu;
#[cfg(test)]
pub(crate) use qemu::tests::process as process_like_qemu;
pub use statistics::AgentCommand;
pub use sync_request::SyncRequest;
pub use timeline::{StartStep, Timeline};
#[cfg(test)]
pub use vm::Agent;
pub use vm::{JobKind, Phase, Request, Snapshot};
pub use wiring::Launcher;
