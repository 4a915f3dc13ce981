//! Growing images when their claim has grown (disk expansion). Before a start the launcher does it;
//! later QEMU does, and has to be told the size.

use super::disk_source::find;
use super::safe_path::Found;
use super::{LauncherFlags, PodError, image, qemu_img, tracking, volumes};
use api::pod_paths;
use api::vmi::Vmi;
use api::vmi::status::VolumeStatus;
use api::vmi::volumes::{PersistentVolumeClaimInfo, Volume, VolumeSource as Source};
use domain::disks::Disk;

const MIB: u64 = 1 << 20;

/// Grows images that are smaller than their claim (`persistentVolumeClaimInfo`), while no guest
/// uses them. A disk that cannot be grown is used as it is, and the reason goes to the log. The
/// domain has them as raw images, whatever the guest has written into them.
// D-disk-7, D-disk-22 (docs/differences.md).
pub(super) fn grow_offline(flags: &LauncherFlags, vmi: &Vmi) {
    for status in &vmi.status.volume_status {
        let Some(claim) = &status.persistent_volume_claim_info else {
            continue;
        };
        let volume = vmi
            .spec
            .volumes
            .iter()
            .find(|volume| volume.name == status.name);
        if let Err(e) = volume.map_or(Ok(()), |volume| {
            grow(flags, volume, status, claim, tracking::is_on(vmi))
        }) {
            tracing::error!(
                "volume {:?}: not grown: {}",
                status.name,
                os::logging::chain(&e)
            );
        }
    }
}

fn grow(
    flags: &LauncherFlags,
    volume: &Volume,
    status: &VolumeStatus,
    claim: &PersistentVolumeClaimInfo,
    is_tracked: bool,
) -> Result<(), PodError> {
    let file = match volume.source() {
        Some(Source::HostDisk(disk)) => pod_paths::file_name(&disk.path),
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_)) => "disk.img",
        _ => return Ok(()),
    };
    if status.hotplug_volume.is_some() || is_tracked {
        // virt-handler mounts a hotplugged volume elsewhere, and an overlay has to grow with its
        // volume. QEMU grows both later.
        return Ok(());
    }
    let Some(found) = volumes::file(flags, &volume.name, file)?.filter(|found| !found.is_block())
    else {
        return Ok(());
    };
    let capacity = claim.size().ok().flatten();
    let overhead = claim.filesystem_overhead.as_deref();
    let Some(size) = possible_size(&found, capacity, overhead)? else {
        return Ok(());
    };
    let present = image::size(&found, &found.read()?)?;
    if size <= present {
        return Ok(());
    }
    tracing::info!(
        "volume {:?}: growing {} from {present} to {size} bytes",
        volume.name,
        found.path().display(),
    );
    qemu_img::grow_raw(&found, size, image::allocated(&found) >= present)
}

/// How large a converted disk could be, in bytes: its whole device; for an image file, the largest
/// that fits into the claim and its file system. `None` where the claim does not say how large it
/// is.
///
/// # Errors
/// The device or file cannot be inspected.
pub fn max_size(flags: &LauncherFlags, disk: &Disk) -> Result<Option<u64>, PodError> {
    let found = find(flags, disk.source.backend_path().unwrap_or_default())?;
    if found.is_block() {
        return image::size(&found, &found.read()?).map(Some);
    }
    possible_size(&found, disk.capacity, disk.filesystem_overhead.as_deref())
}

/// The largest image that fits, in whole MiB. `overhead` is `filesystemOverhead`: the part of the
/// capacity that the file system needs for itself, 0 to 1.
fn possible_size(
    found: &Found,
    capacity: Option<i64>,
    overhead: Option<&str>,
) -> Result<Option<u64>, PodError> {
    let capacity = capacity.and_then(|capacity| u64::try_from(capacity).ok());
    let overhead = overhead.and_then(|overhead| overhead.parse().ok());
    let overhead = overhead.filter(|overhead| (0.0..=1.0).contains(overhead));
    let (Some(capacity), Some(overhead)) = (capacity, overhead) else {
        return Ok(None);
    };
    // O_PATH descriptors know their file system.
    let fs = rustix::fs::fstatfs(found).map_err(PodError::io("find the space of", found.path()))?;
    let available = fs
        .f_bavail
        .saturating_mul(u64::try_from(fs.f_bsize).unwrap_or_default());
    let possible = image::allocated(found).saturating_add(available);
    Ok(usable(capacity.min(possible), overhead))
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the reference computes in double"
)]
fn usable(size: u64, overhead: f64) -> Option<u64> {
    let size = ((1.0 - overhead) * size as f64) as u64 / MIB * MIB;
    (size > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_keeps_its_part_and_mebibytes_stay_whole() {
        assert_eq!(usable(1 << 30, 0.0), Some(1 << 30));
        assert_eq!(usable(1 << 30, 0.055), Some(967 * MIB));
        assert_eq!(usable(1 << 20, 0.5), None);
        assert_eq!(usable(1 << 30, 1.0), None);
    }
}
