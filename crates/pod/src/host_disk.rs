//! Host disks: an image on the node, in a directory that is mounted for the volume. In a cluster
//! virt-handler makes a missing image before the first sync (claims with a file system are host
//! disks as well by then). The launcher makes it where nobody has done that, as without a cluster.

use std::os::fd::AsFd;

use super::error::unusable;
use super::safe_path::{Dir, optional};
use super::staged::Staged;
use super::{LauncherFlags, PodError, overlay, volumes};
use api::pod_paths;
use api::vmi::volumes::HostDisk;

const MIB: u64 = 1 << 20;
/// How much smaller than asked for an image may be: KubeVirt's default of
/// `pvcTolerateLessSpaceUpToPercent`, which virt-handler calls the less-pvc-space-toleration.
const TOLERATED_PERCENT: u64 = 10;

/// Checks that the image is there. Makes a missing one if the VMI says so.
pub(super) fn ensure(flags: &LauncherFlags, volume: &str, disk: &HostDisk) -> Result<(), PodError> {
    let name = file_name(disk)?;
    let existing = match volumes::file(flags, volume, name)? {
        Some(found) => Some(found),
        // A hotplugged claim comes as a host disk, but is mounted elsewhere.
        None => optional(
            Dir::of_pod(&flags.root, flags.hotplug_dir())
                .and_then(|dir| dir.find(&format!("{volume}.img"))),
        )?,
    };
    if existing.is_some() {
        return Ok(());
    }
    let place = flags.root.path(pod_paths::CLAIM_DIR).join(volume);
    let dir = match optional(Dir::of_pod(&flags.root, pod_paths::CLAIM_DIR))? {
        Some(claims) => optional(claims.sub(volume))?,
        None => None,
    };
    let Some(dir) = dir.filter(|_| disk.r#type == "DiskOrCreate") else {
        let reason = format!(
            "the host disk {:?} is not at {}; is its directory on the node mounted there, and should type be DiskOrCreate?",
            disk.path,
            place.join(name).display()
        );
        return Err(PodError::Absent {
            disk: volume.to_owned(),
            reason,
        });
    };
    make(&dir, name, disk)
}

/// The last element of the path on the node; the directory before it is mounted.
fn file_name(disk: &HostDisk) -> Result<&str, PodError> {
    let name = pod_paths::file_name(&disk.path);
    if matches!(name, "" | "." | "..") || name.contains('\0') {
        let path = &disk.path;
        return Err(unusable!("hostDisk.path: {path:?} does not name a file"));
    }
    Ok(name)
}

/// Creates a sparse disk image of the wanted size, if the file system has enough space.
fn make(dir: &Dir, name: &str, disk: &HostDisk) -> Result<(), PodError> {
    let size = overlay::disk_size("hostDisk.capacity", &disk.capacity)?;
    let fs =
        rustix::fs::fstatvfs(dir.as_fd()).map_err(PodError::io("find the space of", dir.path()))?;
    let available = fs.f_bavail.saturating_mul(fs.f_frsize);
    // File systems keep some of a claim's capacity for themselves.
    if size / 100 * (100 - TOLERATED_PERCENT) > available {
        // The number is in the log and not in the error, whose text is the same for the same
        // failure.
        tracing::warn!(path = %disk.path, available, "No space for a host disk");
        return Err(unusable!(
            "hostDisk.capacity: {} does not have the {size} bytes that {:?} needs; free some space or ask for less",
            dir.path().display(),
            disk.path
        ));
    }
    let size = size.min(available / MIB * MIB);
    let staged = Staged::new(dir, name)?;
    staged
        .create()?
        .set_len(size)
        .map_err(PodError::io("set the size of", staged.path()))?;
    staged.commit(0o660)
}
