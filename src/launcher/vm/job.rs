//! Jobs: long work on the domain, and which of it may run in parallel.
//!
//! [`Vm::begin`](super::Vm::begin) starts a job, or refuses it by the table below; the job ends
//! when its guard is dropped, however the work ends. A job reports in the VM's metadata, and each
//! change of them becomes an event for virt-handler.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::phase::PhaseInput;
use super::{Permit, PermitKind, Vm};

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
    #[cfg(test)]
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

    /// Whether the two may run at the same time: a migration is refused during a backup, and a
    /// backup during a migration. While a migration, backup or dump is in progress, QEMU's driver
    /// begins none of the three; it allows attaching devices during a backup, but not during a
    /// migration or dump (`qemuDomainObjSetAsyncJobMask`).
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

/// A running job, which ends on drop.
pub struct Job {
    pub(super) kind: JobKind,
    pub(super) vm: Arc<Vm>,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl Job {
    /// Permission for calls of the job that wait for no turn. It outlives the job.
    pub fn permit(&self) -> Permit {
        Permit(PermitKind::OfJob)
    }

    /// Waits for the turn to change the domain as a part of this job. Nobody who has the turn may
    /// wait for the end of a job.
    pub async fn turn(&self) -> Permit {
        self.vm.turns.next().await
    }

    /// Waits until the job is cancelled.
    pub async fn cancelled(&self) {
        // Cannot fail: the sender lives as long as the job.
        let _ = self
            .cancelled
            .clone()
            .wait_for(|cancelled| *cancelled)
            .await;
    }

    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let kind = self.kind;
        self.vm.change_and_publish(|inner| {
            inner.jobs.retain(|(running, _)| *running != kind);
            if kind == JobKind::Start {
                // Has no effect on a start that has succeeded.
                inner.phase = inner.phase.after(PhaseInput::StartFailed);
            }
        });
        if kind == JobKind::MigrationOut {
            // Only libvirt knows whether the guest is still here.
            self.vm.refresh();
        }
    }
}
