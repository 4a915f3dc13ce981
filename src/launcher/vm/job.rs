//! Jobs: long work on the domain, and which of it may run in parallel.
//!
//! [`Vm::begin`](super::Vm::begin) starts a job, or refuses it by the table below; the job ends
//! when its guard is dropped, however the work ends. A job reports in the VM's metadata, and each
//! change of them becomes an event for virt-handler.

use std::fmt;

/// Work that takes longer than a call may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Starts the domain.
    Start,
    /// Migrates to another node.
    MigrationOut,
    /// Migrates from another node.
    MigrationIn,
    /// Backs up the guest's disks.
    Backup,
    /// Dumps the guest's memory into a file.
    MemoryDump,
    /// Attaches host devices, one after the other.
    HostDeviceHotplug,
}

impl JobKind {
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::MigrationOut,
        Self::MigrationIn,
        Self::Backup,
        Self::MemoryDump,
        Self::HostDeviceHotplug,
    ];

    /// Whether libvirt may block reads of the domain for the job's whole duration. It does not for
    /// a backup (`qemuDomainObjSetAsyncJobMask`).
    pub fn blocks_reads(self) -> bool {
        self != Self::Backup
    }

    /// Whether the two may run at the same time. QEMU's driver runs one of migration, backup and
    /// dump at a time; it allows attaching devices during a backup, but not during a migration or
    /// dump (`qemuDomainObjSetAsyncJobMask`).
    pub fn may_run_beside(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::HostDeviceHotplug, Self::Backup) | (Self::Backup, Self::HostDeviceHotplug)
        )
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "its start",
            Self::MigrationOut => "a migration to another launcher",
            Self::MigrationIn => "a migration from another launcher",
            Self::Backup => "a backup",
            Self::MemoryDump => "a memory dump",
            Self::HostDeviceHotplug => "a host device hotplug",
        })
    }
}
