//! Backups: from what virt-handler asks for and the running domain's disks to the XML that libvirt
//! is given.
//!
//! ```text
//!   BackupOptions ──► BackupRequest ─┐
//!                                    ├──► BackupPlan: <domainbackup>, <domaincheckpoint>, volumes
//!   disks of the live domain ────────┘
//!   disks, QEMU's block nodes ─────────► <domaincheckpoint> of a checkpoint that libvirt has forgotten
//! ```

mod bitmaps;
mod jobs;
mod plan;
mod request;

pub use bitmaps::{QUERY_BLOCK_NODES, RedefineError, redefinition};
pub use jobs::{QUERY_JOBS, has_backup_jobs};
pub use plan::{BackupPlan, BackupPlanError, backup_plan};
pub use request::{BackupId, BackupRequest, BackupRequestError, Export, RequestedMode, Start};
