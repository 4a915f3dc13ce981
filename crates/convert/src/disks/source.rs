//! Where the data of a disk comes from: its volume.

use super::super::{ConvertError, Input};
use super::Wanted;
use crate::error::refuse;
use api::vmi::volumes::{Volume, VolumeSource};
use domain::disks::{
    BackingStore, BackingStoreFormat, DataStore, DataStoreFormat, DiscardMode, Disk, DiskDriver,
    DiskSource, DiskType, ReadOnly,
};

/// The volume of that name, with its place in `spec.volumes`.
pub(super) fn find<'a>(input: &Input<'a>, name: &str) -> Option<(usize, &'a Volume)> {
    input
        .vmi
        .spec
        .volumes
        .iter()
        .enumerate()
        .rfind(|(_, volume)| volume.name == name)
}

/// Adds the source to the disk.
pub(super) fn apply(
    input: &Input<'_>,
    wanted: Wanted<'_>,
    volume: Option<(usize, &Volume)>,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    match volume {
        None if wanted.disk.cdrom.is_some() => {
            empty_drive(disk);
            Ok(())
        }
        None => Err(wanted.refuse(
            "name",
            format!(
                "there is no volume {:?} in spec.volumes; only a CD-ROM drive may be empty",
                wanted.disk.name
            ),
        )),
        Some((at, volume)) if input.ctx.hotplug_volumes.contains_key(&wanted.disk.name) => {
            hotplugged(input, at, volume, disk)
        }
        Some((at, volume)) => permanent(input, at, volume, disk),
    }
}

/// A drive without a medium: a device without a path.
fn empty_drive(disk: &mut Disk) {
    disk.r#type = DiskType::Block;
    let driver = driver(disk);
    driver.r#type = String::from("raw");
    driver.discard = DiscardMode::Unmap;
}

/// A volume that came with the pod.
fn permanent(
    input: &Input<'_>,
    at: usize,
    volume: &Volume,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    let (name, paths, meta) = (&volume.name, &input.paths, &input.vmi.metadata);
    let path = match volume.source() {
        Some(VolumeSource::ContainerDisk(_)) => return container_disk(input, at, volume, disk),
        Some(VolumeSource::CloudInitNoCloud(_)) => {
            paths.cloud_init_no_cloud(&meta.namespace, &meta.name)
        }
        Some(VolumeSource::CloudInitConfigDrive(_)) => {
            paths.cloud_init_config_drive(&meta.namespace, &meta.name)
        }
        Some(VolumeSource::Sysprep(_)) => paths.sysprep_image(name),
        Some(VolumeSource::HostDisk(source)) => {
            let path = paths.host_disk(name, &source.path);
            if let Some(overlay) = input.ctx.apply_cbt.get(name) {
                tracked(disk, overlay, Claim::Image(path));
                return Ok(());
            }
            path
        }
        Some(VolumeSource::PersistentVolumeClaim(_)) => {
            claim(input, name, is_block(&input.ctx.is_block_pvc, name), disk);
            return Ok(());
        }
        Some(VolumeSource::DataVolume(_)) => {
            claim(input, name, is_block(&input.ctx.is_block_dv, name), disk);
            return Ok(());
        }
        Some(VolumeSource::Ephemeral(_)) => {
            ephemeral(input, name, disk);
            return Ok(());
        }
        Some(VolumeSource::EmptyDisk(_)) => {
            image(disk, "qcow2", paths.empty_disk(name));
            driver(disk).discard = DiscardMode::Unmap;
            return Ok(());
        }
        Some(VolumeSource::ConfigMap(_)) => paths.config_map_image(name),
        Some(VolumeSource::Secret(_)) => paths.secret_image(name),
        Some(VolumeSource::DownwardApi(_)) => paths.downward_api_image(name),
        Some(VolumeSource::ServiceAccount(_)) => paths.service_account_image(),
        Some(VolumeSource::DownwardMetrics(_)) => {
            downward_metrics(input, disk);
            return Ok(());
        }
        None => refuse!(
            format!("spec.volumes[{at}]"),
            "the volume {name:?} cannot be a disk; allowed are containerDisk, cloudInitNoCloud, cloudInitConfigDrive, sysprep, \
                 hostDisk, persistentVolumeClaim, dataVolume, ephemeral, emptyDisk, configMap, secret, downwardAPI, serviceAccount \
                 and downwardMetrics"
        ),
    };
    image(disk, "raw", path);
    Ok(())
}

/// A volume that was added while the guest runs. A claim with a file system arrives as a host disk.
fn hotplugged(
    input: &Input<'_>,
    at: usize,
    volume: &Volume,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    let (name, ctx) = (&volume.name, input.ctx);
    let block = match volume.source() {
        Some(VolumeSource::HostDisk(_) | VolumeSource::PersistentVolumeClaim(_)) => {
            is_block(&ctx.is_block_pvc, name)
        }
        Some(VolumeSource::DataVolume(_)) => is_block(&ctx.is_block_dv, name),
        _ => refuse!(
            format!("spec.volumes[{at}]"),
            "the volume {name:?} cannot be hotplugged; allowed are persistentVolumeClaim and dataVolume"
        ),
    };
    let claim = if block {
        Claim::Device {
            path: input.paths.hotplug_device(name),
            name: String::default(),
        }
    } else {
        Claim::Image(input.paths.hotplug_image(name))
    };
    attach_claim(input, name, claim, disk);
    Ok(())
}

/// A claim as a device or as an image on its file system.
enum Claim {
    Device { path: String, name: String },
    Image(String),
}

fn is_block(volumes: &std::collections::BTreeMap<String, bool>, name: &String) -> bool {
    volumes.get(name).copied().unwrap_or(false)
}

fn claim_of(input: &Input<'_>, name: &str, block: bool) -> Claim {
    if block {
        Claim::Device {
            path: input.paths.claim_device(name),
            name: name.to_owned(),
        }
    } else {
        Claim::Image(input.paths.claim_image(name))
    }
}

fn claim(input: &Input<'_>, name: &String, block: bool, disk: &mut Disk) {
    attach_claim(input, name, claim_of(input, name, block), disk);
}

/// A claim's image format is `raw`, whatever is in it. With changed block tracking the guest writes
/// to a qcow2 overlay.
fn attach_claim(input: &Input<'_>, name: &String, claim: Claim, disk: &mut Disk) {
    match input
        .ctx
        .apply_cbt
        .get(name)
        .filter(|overlay| !overlay.is_empty())
    {
        Some(overlay) => tracked(disk, overlay, claim),
        None => {
            driver(disk).r#type = String::from("raw");
            disk.r#type = claim.kind();
            claim.write(&mut disk.source);
        }
    }
    if !input.ctx.volumes_discard_ignore.contains(name) {
        driver(disk).discard = DiscardMode::Unmap;
    }
}

impl Claim {
    fn kind(&self) -> DiskType {
        match self {
            Self::Device { .. } => DiskType::Block,
            Self::Image(_) => DiskType::File,
        }
    }

    fn write(self, source: &mut DiskSource) {
        match self {
            Self::Device { path, name } => (source.dev, source.name) = (path, name),
            Self::Image(path) => source.file = path,
        }
    }
}

/// Changed block tracking: the guest writes through a qcow2 overlay that holds the bitmaps, while
/// the data stays in the raw volume (`<dataStore>`).
fn tracked(disk: &mut Disk, overlay: &str, mut data: Claim) {
    image(disk, "qcow2", overlay.to_owned());
    if let Claim::Device { name, .. } = &mut data {
        disk.source.name = std::mem::take(name);
    }
    let mut store = DataStore {
        r#type: data.kind(),
        format: Some(DataStoreFormat {
            r#type: String::from("raw"),
        }),
        source: Some(DiskSource::default()),
    };
    data.write(store.source.get_or_insert_default());
    disk.source.data_store = Some(Box::new(store));
}

/// An image file of that format.
fn image(disk: &mut Disk, format: &'static str, path: String) {
    disk.r#type = DiskType::File;
    disk.source.file = path;
    driver(disk).r#type = String::from(format);
}

fn driver(disk: &mut Disk) -> &mut DiskDriver {
    disk.driver.get_or_insert_default()
}

/// A writable overlay in front of something that is not written (`<backingStore>`).
fn overlay(input: &Input<'_>, name: &str, format: String, backing: Claim, disk: &mut Disk) {
    image(disk, "qcow2", input.paths.ephemeral_overlay(name));
    driver(disk).discard = DiscardMode::Unmap;
    let mut store = BackingStore {
        r#type: backing.kind(),
        format: Some(BackingStoreFormat { r#type: format }),
        source: Some(DiskSource::default()),
    };
    backing.write(store.source.get_or_insert_default());
    disk.backing_store = Some(Box::new(store));
}

fn container_disk(
    input: &Input<'_>,
    at: usize,
    volume: &Volume,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    let Some(info) = input.ctx.disks_info.get(&volume.name) else {
        refuse!(
            format!("spec.volumes[{at}].containerDisk"),
            "the image of volume {:?} has not been inspected; its container may not have started",
            volume.name
        );
    };
    overlay(
        input,
        &volume.name,
        info.format.clone(),
        Claim::Image(input.paths.container_disk(at)),
        disk,
    );
    Ok(())
}

fn ephemeral(input: &Input<'_>, name: &String, disk: &mut Disk) {
    let claim = claim_of(input, name, is_block(&input.ctx.is_block_pvc, name));
    overlay(input, name, String::from("raw"), claim, disk);
}

/// The vhostmd disk is always a plain virtio disk that is only read, whatever the VMI says.
fn downward_metrics(input: &Input<'_>, disk: &mut Disk) {
    disk.read_only = Some(ReadOnly {});
    disk.model = input.disk_virtio_model.clone();
    disk.source = DiskSource::default();
    disk.driver = Some(DiskDriver {
        name: String::from("qemu"),
        ..DiskDriver::default()
    });
    image(disk, "raw", input.paths.downward_metrics_disk());
}
