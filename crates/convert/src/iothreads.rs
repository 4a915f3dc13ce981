//! Threads for disk I/O: how many there are, and which disk or controller uses which.

use super::{ConvertError, Draft, Input};
use api::vmi::disks::Disk;
use api::vmi::{Quantity, Vmi};
use domain::disks::{DiskBus, DiskDriver, DiskIoThread, DiskIoThreads};
use domain::spec::IoThreads as DomainIoThreads;

/// The largest pool that is accepted; QEMU creates each thread of it, used or not.
// D-conv-3 (docs/differences.md).
const MAX_POOL: u32 = 4096;

/// How many I/O threads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoThreads {
    /// All of them.
    pub total: u64,
    /// Those shared by disks without a dedicated thread, round robin.
    pub auto: u64,
    /// Size of the pool that every virtio disk uses as a whole (policy `supplementalPool`).
    pub pool: Option<u32>,
}

/// Whether a disk asks for a dedicated I/O thread.
pub(super) fn is_dedicated(disk: &Disk) -> bool {
    disk.dedicated_io_thread == Some(true)
}

/// Counts the threads: one for each disk that wants its own, and for the others as many as there
/// are others, within the limit of the policy. All disks count, whatever their bus. `None` without
/// a policy and without a dedicated thread.
pub(super) fn count(vmi: &Vmi) -> Result<Option<IoThreads>, ConvertError> {
    let spec = &vmi.spec.domain;
    let disks = &spec.devices.disks;
    let dedicated = disks.iter().filter(|disk| is_dedicated(disk)).count() as u64;
    match spec.io_threads_policy.as_deref() {
        None if dedicated == 0 => return Ok(None),
        Some("supplementalPool") => {
            let size = pool_size(vmi)?;
            return Ok(Some(IoThreads {
                total: size.into(),
                auto: 0,
                pool: Some(size),
            }));
        }
        _ => {}
    }
    let mut auto = (disks.len() as u64).saturating_sub(dedicated);
    let limit = limit(vmi)?;
    if i64::try_from(auto + dedicated).is_ok_and(|wanted| wanted > limit) {
        auto = u64::try_from(limit)
            .unwrap_or(0)
            .saturating_sub(dedicated)
            .max(1);
    }
    Ok(Some(IoThreads {
        total: auto + dedicated,
        auto,
        pool: None,
    }))
}

fn pool_size(vmi: &Vmi) -> Result<u32, ConvertError> {
    const FIELD: &str = "spec.domain.ioThreads.supplementalPoolThreadCount";
    let size = vmi
        .spec
        .domain
        .io_threads
        .as_ref()
        .and_then(|threads| threads.supplemental_pool_thread_count);
    match size {
        Some(size @ 0..=MAX_POOL) => Ok(size),
        Some(size) => Err(ConvertError::new(
            FIELD,
            format!("{size} threads are too many; at most {MAX_POOL} are allowed"),
        )),
        None => Err(ConvertError::new(
            FIELD,
            "must be set, the policy supplementalPool needs the number of threads in the pool",
        )),
    }
}

/// How many threads the policy allows.
fn limit(vmi: &Vmi) -> Result<i64, ConvertError> {
    let spec = &vmi.spec.domain;
    match spec.io_threads_policy.as_deref() {
        None | Some("shared") => Ok(1),
        // The emulator's dedicated CPU is used for I/O too.
        Some("auto")
            if spec
                .cpu
                .as_ref()
                .is_some_and(|cpu| cpu.dedicated_cpu_placement && cpu.isolate_emulator_thread) =>
        {
            Ok(1)
        }
        Some("auto") => {
            let cpus = |quantity: &Quantity, list: &str| {
                quantity.value().map_err(|error| {
                    ConvertError::new(format!("spec.domain.resources.{list}.cpu"), error)
                })
            };
            let cpus = match (
                spec.resources.requests.get("cpu"),
                spec.resources.limits.get("cpu"),
            ) {
                (Some(request), _) => cpus(request, "requests")?,
                (None, Some(limit)) => cpus(limit, "limits")?,
                (None, None) => 1,
            };
            Ok(cpus.wrapping_mul(2))
        }
        Some(_) => Ok(0),
    }
}

/// `<iothreads>`.
pub(super) fn total(input: &Input<'_>, draft: &mut Draft) -> Result<(), ConvertError> {
    if let Some(threads) = input.iothreads
        && threads.total > 0
    {
        draft.domain.iothreads = Some(DomainIoThreads {
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

    /// Gives the disk its thread or threads. Only virtio disks take part, but those that are left
    /// out of the domain do as well.
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
