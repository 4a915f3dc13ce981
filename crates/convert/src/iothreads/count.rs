//! How many threads for disk I/O there are.

use crate::ConvertError;
use crate::error::refuse;
use api::vmi::disks::Disk;
use api::vmi::{Quantity, Vmi};

/// The largest pool that is accepted; QEMU creates each thread of it, used or not.
// D-conv-3 (docs/differences.md).
const MAX_POOL: u32 = 4096;
/// The domain lists the whole pool for each disk that uses it: the most entries of all lists.
// D-conv-3 (docs/differences.md).
const MAX_POOL_ENTRIES: usize = 65_536;

/// How many I/O threads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoThreads {
    pub total: u64,
    /// Those shared by disks without a dedicated thread, round robin.
    pub auto: u64,
    /// Size of the pool that every virtio disk uses as a whole (policy `supplementalPool`).
    pub pool: Option<u32>,
}

/// Whether a disk asks for a dedicated I/O thread.
pub(crate) fn is_dedicated(disk: &Disk) -> bool {
    disk.dedicated_io_thread == Some(true)
}

/// Counts the threads: one for each disk that wants its own, and for the others as many as there
/// are others, within the limit of the policy. All disks count, whatever their bus. `None` without
/// a policy and without a dedicated thread.
pub(crate) fn count(vmi: &Vmi) -> Result<Option<IoThreads>, ConvertError> {
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
    let disks = vmi.spec.domain.devices.disks.len();
    let threads = vmi.spec.domain.io_threads.as_ref();
    let size = threads.and_then(|threads| threads.supplemental_pool_thread_count);
    match size {
        Some(size @ 0..=MAX_POOL) if size as usize * disks <= MAX_POOL_ENTRIES => Ok(size),
        Some(size @ 0..=MAX_POOL) => refuse!(
            FIELD,
            "{size} threads for each of {disks} disks are too many; at most {MAX_POOL_ENTRIES} are allowed in all"
        ),
        Some(size) => refuse!(
            FIELD,
            "{size} threads are too many; at most {MAX_POOL} are allowed"
        ),
        None => refuse!(
            FIELD,
            "must be set, the policy supplementalPool needs the number of threads in the pool"
        ),
    }
}

/// How many threads `ioThreadsPolicy` allows.
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
                quantity.value().map_err(ConvertError::of(format!(
                    "spec.domain.resources.{list}.cpu"
                )))
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
