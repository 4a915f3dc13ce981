//! Making everything that the domain's disks refer to, before the guest starts.

use super::cloud_init::{CloudInitData, write_cloud_init, write_empty_cloud_init};
use super::config_volumes::ConfigVolume;
use super::error::unusable;
use super::side_by_side::{Task, side_by_side};
use super::{
    LauncherFlags, PodError, downward_metrics, growth, host_disk, ignition, kernel_boot, overlay,
    volumes,
};
use api::vmi::Vmi;
use api::vmi::volumes::{Volume, VolumeSource as Source};
use convert::Context;

/// Makes overlays, empty disks and ISO images, links the files of image volumes, checks that claims
/// are there, and grows their images. Blocks. A second call changes nothing; a call after an
/// interrupted one makes unfinished files anew.
///
/// # Errors
/// The first volume that cannot be prepared, and why.
pub fn prepare(
    flags: &LauncherFlags,
    vmi: &Vmi,
    ctx: &Context,
    cloud_init: Option<&CloudInitData>,
) -> Result<(), PodError> {
    let iso = |volume: &ConfigVolume<'_>, _: &Volume| volume.make(flags);
    let mut tasks = of_volumes(flags, vmi, ctx, &iso);
    if let Some(data) = cloud_init {
        tasks.push(Box::new(|| write_cloud_init(flags, vmi, data).map(drop)));
    }
    side_by_side(&tasks)?;
    growth::grow_offline(flags, vmi);
    Ok(())
}

/// Creates the disk images of a migration target. ISO images are only as large as those of the
/// source: their content comes with the migration.
///
/// # Errors
/// Those of [`prepare`], or the VMI's status does not say how large an image is.
// D-mig-27 (docs/differences.md).
pub fn prepare_migration_target(
    flags: &LauncherFlags,
    vmi: &Vmi,
    ctx: &Context,
    cloud_init: Option<&CloudInitData>,
) -> Result<(), PodError> {
    let iso = |volume: &ConfigVolume<'_>, named: &Volume| {
        volume.make_empty(flags, image_size(vmi, &named.name)?)
    };
    side_by_side(&of_volumes(flags, vmi, ctx, &iso))?;
    if let Some(data) = cloud_init {
        let size = image_size(vmi, &data.volume_name)?;
        write_empty_cloud_init(flags, vmi, data.data_source, size)
            .map_err(PodError::of(&data.volume_name))?;
    }
    Ok(())
}

type MakeIso<'f> = dyn Fn(&ConfigVolume<'_>, &Volume) -> Result<(), PodError> + Sync + 'f;

/// What is to be done for the volumes. No task needs the file of another: volumes have unique names,
/// and KubeVirt admits at most one `serviceAccount` and one `downwardMetrics` volume.
fn of_volumes<'t>(
    flags: &'t LauncherFlags,
    vmi: &'t Vmi,
    ctx: &'t Context,
    iso: &'t MakeIso<'_>,
) -> Vec<Task<'t>> {
    let mut tasks: Vec<Task<'_>> = vec![
        Box::new(|| kernel_boot::prepare(flags, vmi)),
        Box::new(|| ignition::prepare(flags, vmi)),
    ];
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        tasks.push(Box::new(move || {
            super::safe_path::checked_name("volume", &volume.name)?;
            prepare_volume(flags, vmi, ctx, index, volume, iso).map_err(PodError::of(&volume.name))
        }));
    }
    tasks
}

fn prepare_volume(
    flags: &LauncherFlags,
    vmi: &Vmi,
    ctx: &Context,
    index: usize,
    volume: &Volume,
    iso: &MakeIso<'_>,
) -> Result<(), PodError> {
    let name = volume.name.as_str();
    let has_disk = vmi
        .spec
        .domain
        .devices
        .disks
        .iter()
        .any(|disk| disk.name == name);
    let is_hotplug = ctx.hotplug_volumes.contains_key(name);
    match volume.source() {
        Some(Source::ContainerDisk(source)) => overlay::container_disk(flags, index, name, source),
        Some(Source::Ephemeral(_)) => overlay::ephemeral(flags, name),
        Some(Source::EmptyDisk(source)) => overlay::empty(flags, name, source),
        Some(Source::HostDisk(disk)) if has_disk && !is_hotplug => {
            host_disk::ensure(flags, name, disk)
        }
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_))
            if has_disk && !is_hotplug =>
        {
            volumes::claim(flags, name).map(drop)
        }
        Some(Source::DownwardMetrics(_)) => downward_metrics::prepare(flags),
        _ => match ConfigVolume::iso_files(volume) {
            Some(config) if has_disk || !config.needs_a_disk() => iso(&config, volume),
            _ => Ok(()),
        },
    }
}

fn image_size(vmi: &Vmi, volume: &str) -> Result<u64, PodError> {
    let status = vmi
        .status
        .volume_status
        .iter()
        .find(|status| status.name == volume);
    status
        .and_then(|status| u64::try_from(status.size).ok())
        .ok_or_else(|| {
            unusable!(
                "failed to find the status of volume {volume}: status.volumeStatus must say how large the source's image is"
            )
        })
}
