//! Long work on the domain, and what may run beside it.
//!
//! A job is begun by [`Vm::begin`](super::Vm::begin), which refuses it where the table below says
//! so, and ends when its guard is dropped, however the work ends. What it has to report it writes
//! into the VM's metadata, of which each change becomes an event for virt-handler.

use std::fmt;

/// What takes longer than a call may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// From the VMI to a running domain.
    Start,
    /// To another node.
    MigrationOut,
    /// From another node.
    MigrationIn,
    /// Of the guest's disks.
    Backup,
    /// Of the guest's memory, into a file.
    MemoryDump,
    /// Host devices that are attached one after the other.
    HostDeviceHotplug,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::MigrationOut,
        Self::MigrationIn,
        Self::Backup,
        Self::MemoryDump,
        Self::HostDeviceHotplug,
    ];

    /// Whether libvirt may keep a read of the domain waiting for as long as it lasts. It may not
    /// for a backup (`qemuDomainObjSetAsyncJobMask`).
    pub fn blocks_reads(self) -> bool {
        self != Self::Backup
    }

    /// Whether the two may run at the same time. QEMU's driver runs one of migration, backup and
    /// dump at a time; it lets devices be attached while a backup runs, and not while it migrates
    /// or dumps (`qemuDomainObjSetAsyncJobMask`).
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
