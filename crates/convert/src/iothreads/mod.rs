//! Threads for disk I/O: which disk or controller uses which.

pub(crate) mod count;

use super::{ConvertError, DomainSpec, Input};
use api::vmi::disks::Disk;
use domain::disks::{DiskBus, DiskDriver, DiskIoThread, DiskIoThreads};
use domain::spec::IoThreads as DomainIoThreads;

use count::{IoThreads, is_dedicated};

/// `<iothreads>`.
pub(super) fn total(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    if let Some(threads) = input.iothreads
        && threads.total > 0
    {
        domain.iothreads = Some(DomainIoThreads {
            iothreads: threads.total,
        });
    }
    Ok(())
}

/// Gives disks their threads, in the order of the VMI: the shared ones, 1 and up, in turns; behind
/// them the dedicated ones.
#[derive(Debug)]
pub(super) struct Assignment {
    threads: IoThreads,
    next_auto: u64,
    next_dedicated: u64,
}

impl Assignment {
    pub(super) fn new(threads: IoThreads) -> Self {
        Self {
            threads,
            next_auto: 1,
            next_dedicated: threads.auto + 1,
        }
    }

    /// Gives the disk its I/O threads, by `ioThreadsPolicy` and `dedicatedIOThread`. Only virtio
    /// disks take part, but those that are left out of the domain do as well.
    pub(super) fn assign(&mut self, disk: &Disk, bus: &DiskBus, driver: &mut DiskDriver) {
        if *bus != DiskBus::Virtio {
            return;
        }
        if let Some(size) = self.threads.pool {
            driver.iothreads = Some(DiskIoThreads {
                iothread: (1..=size).map(|id| DiskIoThread { id }).collect(),
            });
        } else if is_dedicated(disk) {
            driver.iothread = Some(self.next_dedicated);
            self.next_dedicated += 1;
        } else {
            driver.iothread = Some(self.next_auto);
            self.next_auto = next(self.next_auto, self.threads.auto);
        }
    }
}

/// The next of `count` shared threads, the first after the last.
fn next(thread: u64, count: u64) -> u64 {
    thread.checked_rem(count).unwrap_or(0) + 1
}

/// The shared thread that the SCSI controller uses: the one whose turn it would be after all virtio
/// disks had theirs. The controller gets one only when a SCSI disk asks for a dedicated thread.
pub(super) fn of_scsi_controller(threads: IoThreads, disks: &[Disk]) -> Option<u64> {
    let wanted = disks
        .iter()
        .any(|disk| disk.bus() == "scsi" && is_dedicated(disk));
    if threads.auto == 0 || !wanted {
        return None;
    }
    let before = disks
        .iter()
        .filter(|disk| disk.bus() == "virtio" && !is_dedicated(disk));
    Some(before.fold(1, |thread, _| next(thread, threads.auto)))
}
