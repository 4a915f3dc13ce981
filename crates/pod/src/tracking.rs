//! Changed block tracking: the guest writes through a qcow2 overlay that has no data of its own,
//! only the bitmaps that backups need. Its clusters all map to the raw volume below, which stays a
//! valid image at every moment.
//!
//! Which volumes are tracked: `changed_block_tracking` in `volumes`.
//!
//! The overlays are on the VM's state volume and outlive the pod. An existing overlay is never made
//! anew.

use std::path::Path;

use super::disk_source::find;
use super::safe_path::{Dir, optional};
use super::staged::Staged;
use super::{LauncherFlags, PodError, image, qemu_img};
use api::pod_paths::cbt_dir;
use api::vmi::Vmi;
use domain::disks::Disk;

/// Ending of an overlay's name, after the volume's name.
const OVERLAY_SUFFIX: &str = ".qcow2";
/// Phase of a hotplugged volume that is mounted, but not in the domain yet.
const MOUNTED: &str = "MountedToPod";

/// Whether changes of the VMI's volumes are tracked (`status.changedBlockTracking`).
pub(super) fn is_on(vmi: &Vmi) -> bool {
    matches!(state(vmi), "Initializing" | "Enabled")
}

fn state(vmi: &Vmi) -> &str {
    vmi.status
        .changed_block_tracking
        .as_ref()
        .map_or("", |tracking| tracking.state.as_str())
}

/// Makes the overlay of a converted disk that has one, if the overlay is missing and tracking
/// begins now: with the VMI, or with the disk when it is plugged in.
///
/// # Errors
/// The overlay cannot be made; QEMU cannot use the one that is there; or it is missing although
/// tracking has begun earlier, and the bitmaps of a new one would not know what has changed.
pub fn track(flags: &LauncherFlags, vmi: &Vmi, disk: &Disk) -> Result<(), PodError> {
    let Some(name) = overlay_name(disk) else {
        return Ok(());
    };
    let dir = Dir::of_pod_made(&flags.root, cbt_dir(flags.run_as_nonroot))?;
    let volume = disk.alias.as_ref().map_or(name, |alias| &alias.name);
    if let Some(found) = optional(dir.find(name))? {
        return qemu_img::check_tracking(flags, &found).map_err(PodError::of(volume));
    }
    if !begins(vmi, volume) {
        let reason = format!(
            "the overlay {}, which tracks the changed blocks of volume {volume:?}, is missing; is the VM's state volume mounted in this pod?",
            dir.path().join(name).display()
        );
        return Err(PodError::Absent {
            disk: volume.to_owned(),
            reason,
        });
    }
    make(flags, &dir, name, disk).map_err(PodError::of(volume))
}

/// Makes the overlay of a converted disk that has one, whatever is in its place. The source brings
/// the bitmaps.
///
/// # Errors
/// It cannot be made.
pub(super) fn make_anew(flags: &LauncherFlags, disk: &Disk) -> Result<(), PodError> {
    let Some(name) = overlay_name(disk) else {
        return Ok(());
    };
    let dir = Dir::of_pod_made(&flags.root, cbt_dir(flags.run_as_nonroot))?;
    let volume = disk.alias.as_ref().map_or(name, |alias| &alias.name);
    make(flags, &dir, name, disk).map_err(PodError::of(volume))
}

/// Removes the overlays of volumes that are gone from the VMI and from the running domain's disks:
/// these overlays would not know of changes that are made elsewhere. A disk that the guest has not
/// released yet keeps its overlay, because the guest writes through it.
///
/// # Errors
/// One cannot be removed.
// D-disk-23 (docs/differences.md).
pub fn untrack_unplugged(flags: &LauncherFlags, vmi: &Vmi, live: &[Disk]) -> Result<(), PodError> {
    if !is_on(vmi) {
        return Ok(());
    }
    let Some(dir) = optional(Dir::of_pod(&flags.root, cbt_dir(flags.run_as_nonroot)))? else {
        return Ok(());
    };
    for name in dir.entries()? {
        let Some(volume) = name.strip_suffix(OVERLAY_SUFFIX) else {
            continue;
        };
        let is_wanted = vmi.spec.volumes.iter().any(|wanted| wanted.name == volume);
        let is_in_use = live.iter().any(|disk| overlay_name(disk) == Some(&name));
        if is_wanted || is_in_use {
            continue;
        }
        match rustix::fs::unlinkat(&dir, &name, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(PodError::io("remove", dir.path().join(&name))(e)),
        }
        tracing::info!(
            "Removed the overlay {} of an unplugged volume",
            dir.path().join(&name).display()
        );
    }
    Ok(())
}

/// The overlay's name in its directory; none for a disk without one.
fn overlay_name(disk: &Disk) -> Option<&str> {
    disk.source.data_store.as_ref()?;
    Path::new(disk.source.file.as_str()).file_name()?.to_str()
}

fn begins(vmi: &Vmi, volume: &str) -> bool {
    let status = vmi
        .status
        .volume_status
        .iter()
        .find(|status| status.name == volume);
    let is_plugged_in =
        status.is_some_and(|status| status.hotplug_volume.is_some() && status.phase == MOUNTED);
    state(vmi) == "Initializing" || is_plugged_in
}

// D-disk-8 (docs/differences.md).
fn make(flags: &LauncherFlags, dir: &Dir, name: &str, disk: &Disk) -> Result<(), PodError> {
    let data = find(flags, disk.source.backend_path().unwrap_or_default())?;
    let size = image::size(&data, &data.read()?)?.next_multiple_of(512);
    let (overlay, stand_in) = (
        Staged::new(dir, name)?,
        Staged::new(dir, &format!("{name}.data"))?,
    );
    qemu_img::create_tracking(&overlay.path(), &stand_in.path(), data.path(), size)?;
    tracing::info!(
        "Created the overlay {}, which tracks the changed blocks of {}",
        dir.path().join(name).display(),
        data.path().display()
    );
    overlay.commit(0o640)
}
