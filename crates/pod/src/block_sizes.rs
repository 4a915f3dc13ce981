//! Block sizes of volumes, for disks that are to have the sizes of their file or device
//! (`blockSize.matchVolume`).

use std::path::Path;

use super::machine::Machine;
use super::safe_path::{Found, optional};
use super::{LauncherFlags, PodError, volumes};
use api::pod_paths::PodPaths;
use api::vmi::Vmi;
use api::vmi::disks::Disk;
use api::vmi::volumes::{Volume, VolumeSource as Source};
use convert::context::{BlockDeviceProbe, Context};

/// Inspects the volumes of such disks. A volume that is not there yet has no sizes.
pub(super) fn collect(
    flags: &LauncherFlags,
    machine: &Machine,
    vmi: &Vmi,
    ctx: &mut Context,
) -> Result<(), PodError> {
    let matching = vmi
        .spec
        .domain
        .devices
        .disks
        .iter()
        .filter(|disk| matches_volume(disk));
    for disk in matching {
        let Some(volume) = vmi
            .spec
            .volumes
            .iter()
            .find(|volume| volume.name == disk.name)
        else {
            continue;
        };
        let name = volume.name.as_str();
        let device = match ctx.hotplug_volumes.contains_key(name) {
            true => optional(volumes::hotplugged_device(flags, name)),
            false => optional(volumes::device(flags, name)),
        };
        if let Ok(Some(device)) = device
            && device.is_block()
        {
            ctx.block_device_probes
                .insert(text(device.path()), probe(machine, &device)?);
        }
        for image in images(&ctx.paths(), vmi, volume) {
            if let Some(size) = file_system_block_size(flags, &image) {
                ctx.file_block_sizes.insert(image, size);
            }
        }
    }
    Ok(())
}

/// Whether the disk asks for the volume's block sizes.
#[must_use]
pub fn matches_volume(disk: &Disk) -> bool {
    let matching = disk
        .block_size
        .as_ref()
        .filter(|size| size.custom.is_none())
        .and_then(|size| size.match_volume.as_ref());
    matching.is_some_and(|feature| feature.enabled != Some(false))
}

fn probe(machine: &Machine, device: &Found) -> Result<BlockDeviceProbe, PodError> {
    let file = device.read()?;
    let fail = || PodError::io("ask for the block size of", device.path());
    let logical = rustix::fs::ioctl_blksszget(&file).map_err(|e| fail()(e))?;
    let physical = rustix::fs::ioctl_blkpbszget(&file).map_err(|e| fail()(e))?;
    let number = device.stat().st_rdev;
    let queue = format!(
        "/sys/dev/block/{}:{}/queue/discard_granularity",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    // A device without this file cannot discard.
    let discard_granularity = std::fs::read_to_string(machine.path(&queue))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    Ok(BlockDeviceProbe {
        logical: logical.into(),
        physical: physical.into(),
        discard_granularity,
    })
}

/// Images that a disk on the volume may have.
#[must_use]
pub fn images(paths: &PodPaths<'_>, vmi: &Vmi, volume: &Volume) -> Vec<String> {
    let (name, meta) = (volume.name.as_str(), &vmi.metadata);
    match volume.source() {
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_)) => {
            vec![paths.claim_image(name), paths.hotplug_image(name)]
        }
        Some(Source::HostDisk(disk)) => {
            vec![paths.host_disk(name, &disk.path), paths.hotplug_image(name)]
        }
        Some(Source::ContainerDisk(_) | Source::Ephemeral(_)) => {
            vec![paths.ephemeral_overlay(name)]
        }
        Some(Source::EmptyDisk(_)) => vec![paths.empty_disk(name)],
        Some(Source::CloudInitNoCloud(_)) => {
            vec![paths.cloud_init_no_cloud(&meta.namespace, &meta.name)]
        }
        Some(Source::CloudInitConfigDrive(_)) => {
            vec![paths.cloud_init_config_drive(&meta.namespace, &meta.name)]
        }
        Some(Source::ConfigMap(_)) => vec![paths.config_map_image(name)],
        Some(Source::Secret(_)) => vec![paths.secret_image(name)],
        Some(Source::DownwardApi(_)) => vec![paths.downward_api_image(name)],
        Some(Source::Sysprep(_)) => vec![paths.sysprep_image(name)],
        Some(Source::ServiceAccount(_)) => vec![paths.service_account_image()],
        Some(Source::DownwardMetrics(_)) | None => Vec::new(),
    }
}

/// `f_bsize` of the file system of an image. Of an image that is still to be made, that of the
/// nearest directory that exists.
fn file_system_block_size(flags: &LauncherFlags, image: &str) -> Option<u64> {
    let stop = flags.root.dir();
    Path::new(image)
        .ancestors()
        .take_while(|path| *path != stop)
        .find_map(|path| rustix::fs::statfs(path).ok())
        .and_then(|fs| u64::try_from(fs.f_bsize).ok())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into()
}
