//! The vhostmd disk (a `downwardMetrics` volume): metrics of the host that the guest reads from a
//! block device. virt-handler writes them; the launcher makes the disk, without metrics.
//!
//! Layout, all big endian: `mvbd`; 1 while the disk is being written; the sum of the document's
//! bytes; the document's length; the document.

use super::safe_path::{Dir, optional};
use api::pod_paths::{DOWNWARD_API_IMAGE_DIR, METRICS_DISK};

use super::{LauncherFlags, PodError, staged};

const SIZE: u32 = 256 * 1024;
const NO_METRICS: &[u8] = b"<metrics></metrics>\n";

/// Makes the disk if it is not there.
pub(super) fn prepare(flags: &LauncherFlags) -> Result<(), PodError> {
    let dir = Dir::of_pod_made(&flags.root, DOWNWARD_API_IMAGE_DIR)?;
    let is_whole = optional(dir.find(METRICS_DISK))?
        .is_some_and(|found| found.stat().st_size == i64::from(SIZE));
    if is_whole {
        Ok(())
    } else {
        staged::write(&dir, METRICS_DISK, &disk(), 0o755)
    }
}

fn disk() -> Vec<u8> {
    let (mut length, mut sum) = (0_u32, 0_u32);
    for byte in NO_METRICS {
        length += 1;
        sum += u32::from(*byte);
    }
    let mut disk = Vec::with_capacity(SIZE as usize);
    disk.extend(b"mvbd");
    for number in [0, sum, length] {
        disk.extend(number.to_be_bytes());
    }
    disk.extend(NO_METRICS);
    disk.resize(SIZE as usize, 0);
    disk
}
