//! What each volume is: a claim's block device or file, attached for good or hotplugged.

use std::collections::BTreeMap;

use super::safe_path::{Dir, Found, checked_name, optional};
use super::{LauncherFlags, PodError, container_disk, image, tracking};
use api::pod_paths::{self, PodPaths};
use api::vmi::Vmi;
use api::vmi::volumes::{Volume, VolumeSource as Source};
use convert::context::{Context, DiskInfo};

/// The known images of container disks, by the volumes' names. The pod's files have the volumes'
/// indices from when the pod was made, and an index changes when a volume before it is unplugged.
/// So an image that was found once is not looked for again.
pub type ContainerDisks = BTreeMap<String, DiskInfo>;

/// Fills in the context's facts about volumes.
pub(super) fn collect(
    flags: &LauncherFlags,
    vmi: &Vmi,
    known: &ContainerDisks,
    ctx: &mut Context,
) -> Result<(), PodError> {
    for status in &vmi.status.volume_status {
        let map = if status.hotplug_volume.is_some() {
            &mut ctx.hotplug_volumes
        } else {
            &mut ctx.permanent_volumes
        };
        map.insert(status.name.clone(), status.clone());
    }
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        checked_name("volume", &volume.name)?;
        let is_hotplug = ctx.hotplug_volumes.contains_key(&volume.name);
        match volume.source() {
            Some(Source::PersistentVolumeClaim(_) | Source::Ephemeral(_)) => {
                ctx.is_block_pvc
                    .insert(volume.name.clone(), is_block(flags, volume, is_hotplug));
            }
            Some(Source::DataVolume(_)) => {
                ctx.is_block_dv
                    .insert(volume.name.clone(), is_block(flags, volume, is_hotplug));
            }
            Some(Source::ContainerDisk(source)) => {
                let info = match known.get(&volume.name) {
                    Some(info) => info.clone(),
                    None => container_disk_info(flags, index, source)
                        .map_err(PodError::of(&volume.name))?,
                };
                ctx.disks_info.insert(volume.name.clone(), info);
            }
            _ => {}
        }
    }
    ctx.apply_cbt = changed_block_tracking(flags, &ctx.paths(), vmi);
    Ok(())
}

fn container_disk_info(
    flags: &LauncherFlags,
    index: usize,
    source: &api::vmi::volumes::ContainerDiskSource,
) -> Result<DiskInfo, PodError> {
    let found = container_disk::image(flags, index, source)?;
    let info = image::inspect(&found)?;
    image::must_stand_alone(found.path(), &info)?;
    Ok(info)
}

/// Whether the claim's device is there. Anything else counts as a file, even if nothing is there: a
/// missing file is an error when it is needed, before a start.
fn is_block(flags: &LauncherFlags, volume: &Volume, is_hotplug: bool) -> bool {
    let found = if is_hotplug {
        hotplugged_device(flags, &volume.name)
    } else {
        device(flags, &volume.name)
    };
    found.is_ok_and(|found| found.is_block())
}

/// `/dev/<volume>`.
pub(super) fn device(flags: &LauncherFlags, volume: &str) -> Result<Found, PodError> {
    Dir::of_pod(&flags.root, pod_paths::DEVICE_DIR)?.find(volume)
}

/// `<hotplug-disk-dir>/<volume>`.
pub(super) fn hotplugged_device(flags: &LauncherFlags, volume: &str) -> Result<Found, PodError> {
    Dir::of_pod(&flags.root, flags.hotplug_dir())?.find(volume)
}

/// A file of a volume with a file system, `vmi-disks/<volume>/<file>`; `None` if it is not there.
pub(super) fn file(
    flags: &LauncherFlags,
    volume: &str,
    file: &str,
) -> Result<Option<Found>, PodError> {
    let Some(claims) = optional(Dir::of_pod(&flags.root, pod_paths::CLAIM_DIR))? else {
        return Ok(None);
    };
    let Some(dir) = optional(claims.sub(volume))? else {
        return Ok(None);
    };
    optional(dir.find(file))
}

/// A claim (`persistentVolumeClaim`, `dataVolume`) that a disk of the domain uses must be there, as
/// a device or as the file `disk.img`.
pub(super) fn claim(flags: &LauncherFlags, volume: &str) -> Result<Found, PodError> {
    match optional(device(flags, volume)) {
        Ok(Some(found)) if found.is_block() => return Ok(found),
        Ok(Some(found)) => {
            let reason = "it is a file, and only a block device may be there; is the claim's volumeMode Block?";
            return Err(PodError::invalid(found.path(), reason));
        }
        Ok(None) => {}
        Err(e) => return Err(e),
    }
    file(flags, volume, pod_paths::CLAIM_IMAGE)?.ok_or_else(|| PodError::Absent {
        disk: volume.to_owned(),
        reason: format!(
            "volume {volume:?} is a claim, but neither {} nor {} exists; is the claim attached to this pod?",
            flags.root.path(PodPaths::default().claim_device(volume)).display(),
            flags.root.path(PodPaths::default().claim_image(volume)).display(),
        ),
    })
}

/// Where the overlays of tracked volumes are, if the status says that tracking is on.
fn changed_block_tracking(
    flags: &LauncherFlags,
    paths: &PodPaths<'_>,
    vmi: &Vmi,
) -> BTreeMap<String, String> {
    if !tracking::is_on(vmi) {
        return BTreeMap::new();
    }
    let can_be_tracked = |volume: &&Volume| {
        let source = volume.source();
        matches!(
            source,
            Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_) | Source::HostDisk(_))
        )
    };
    let overlay = |volume: &Volume| paths.cbt_overlay(flags.run_as_nonroot, &volume.name);
    vmi.spec
        .volumes
        .iter()
        .filter(can_be_tracked)
        .map(|volume| (volume.name.clone(), overlay(volume)))
        .collect()
}
