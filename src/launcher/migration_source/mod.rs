//! Live migration, as the source.
//!
//! ```text
//!  MigrateVirtualMachine ─► metadata ─► a job: detach SR-IOV ─► document ─► plugins ─► libvirt ─┬─► metadata: ended
//!                                                                                         ▲       │
//!                                 sample every 400 ms, at each iteration ─► monitor ─► decisions ─┘
//!  CancelVirtualMachineMigration ─► metadata: Aborting ─► abort ──────────────────────────┘
//! ```
//!
//! virt-handler sees only the metadata, and a cancellation reaches the job only through them.
//! libvirt and QEMU decide where the guest runs: after any failure here it still runs on one side.

mod abort;
mod adopted;
mod document;
pub(super) mod error;
mod monitor;
mod plugins;
mod progress;
mod record;
mod source;
mod sriov;
mod transfer;

pub(super) use adopted::AdoptedMigration;
pub(super) use progress::job_info;
pub use record::MigrationRecord;
pub use source::{MigrateRequest, MigrationSource};
