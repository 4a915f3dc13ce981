//! Writable overlays over images that must not change (container disks, ephemeral volumes), and
//! empty disks. All are qcow2 images that live as long as the pod.

use std::path::{Path, PathBuf};

use super::error::unusable;
use super::safe_path::{Dir, Found, optional};
use super::staged::Staged;
use super::{LauncherFlags, PodError, container_disk, image, qemu_img, volumes};
use api::pod_paths;
use api::vmi::Quantity;
use api::vmi::volumes::{ContainerDiskSource, EmptyDiskSource};
use convert::context::DiskInfo;

const MIB: u64 = 1 << 20;

/// Makes the overlay of the container disk that is `spec.volumes[index]`, with the image's own
/// format as backing format. With image volumes, also makes a link to the image in the place where
/// it would be without them.
pub(super) fn container_disk(
    flags: &LauncherFlags,
    index: usize,
    volume: &str,
    source: &ContainerDiskSource,
) -> Result<(), PodError> {
    let found = container_disk::image(flags, index, source)?;
    let info = image::inspect(&found)?;
    image::must_stand_alone(found.path(), &info)?;
    qemu_img::check(flags, &found, &info)?;
    let name = pod_paths::container_disk(index);
    if flags.image_volume {
        let dir = Dir::of_pod_made(&flags.root, flags.container_disk_dir())?;
        super::staged::link(&dir, &name, &found.real_path()?)?;
    }
    let Some(missing) = Missing::overlay(flags, volume)? else {
        return Ok(());
    };
    let backing = flags.root.path(&flags.container_disk_dir).join(name);
    missing.make(|path| qemu_img::create_overlay(path, &backing, &info.format, info.virtual_size))
}

/// Makes the overlay of an ephemeral volume. The backing format is always raw, so nothing in the
/// image is interpreted.
pub(super) fn ephemeral(flags: &LauncherFlags, volume: &str) -> Result<(), PodError> {
    let found = volumes::claim(flags, volume)?;
    let Some(missing) = Missing::overlay(flags, volume)? else {
        return Ok(());
    };
    let size = image::size(&found, &found.read()?)?.next_multiple_of(512);
    missing.make(|path| qemu_img::create_overlay(path, found.path(), "raw", size))
}

pub(super) fn empty(
    flags: &LauncherFlags,
    volume: &str,
    source: &EmptyDiskSource,
) -> Result<(), PodError> {
    let size = disk_size("emptyDisk.capacity", &source.capacity)?;
    let dir = Dir::of_pod_made(&flags.root, pod_paths::EMPTY_DISK_DIR)?;
    let name = format!("{volume}.qcow2");
    if let Some((kept, info)) = image_of_earlier_start(flags, &dir, &name)? {
        return image::must_stand_alone(kept.path(), &info);
    }
    let missing = Missing { dir, name };
    missing.make(|path| qemu_img::create(path, size))
}

/// The capacity of a disk that is to be made, in bytes: whole MiB.
pub(super) fn disk_size(field: &str, capacity: &Quantity) -> Result<u64, PodError> {
    let bytes = capacity.value();
    let bytes = bytes.map_err(|error| unusable!("{field}: {error}"))?;
    match u64::try_from(bytes).unwrap_or_default() / MIB * MIB {
        0 => Err(unusable!(
            "{field}: {:?} is less than 1Mi, the smallest disk",
            capacity.0
        )),
        size => Ok(size),
    }
}

/// An image that is still to be made.
struct Missing {
    dir: Dir,
    name: String,
}

impl Missing {
    /// `None`: the overlay is there and stays.
    fn overlay(flags: &LauncherFlags, volume: &str) -> Result<Option<Self>, PodError> {
        let dir = Dir::of_pod_made(&flags.root, &format!("{}/{volume}", flags.overlay_dir()))?;
        let name = pod_paths::OVERLAY_IMAGE.to_owned();
        let is_kept = image_of_earlier_start(flags, &dir, &name)?.is_some();
        Ok((!is_kept).then_some(Self { dir, name }))
    }

    fn make(self, how: impl FnOnce(&Path) -> Result<(), PodError>) -> Result<(), PodError> {
        let staged = Staged::new(&self.dir, &self.name)?;
        let path: PathBuf = staged.path();
        how(&path)?;
        staged.commit(0o640)
    }
}

/// The image of an earlier start, which stays. It is checked like any other image, because others
/// may have written to it.
///
/// A file without a header, left by a launcher that wrote in place, has no data either and is made
/// again.
// D-disk-11 (docs/differences.md).
fn image_of_earlier_start(
    flags: &LauncherFlags,
    dir: &Dir,
    name: &str,
) -> Result<Option<(Found, DiskInfo)>, PodError> {
    let found = match optional(dir.find(name))? {
        Some(found) if image::is_qcow2(&found)? => found,
        _ => return Ok(None),
    };
    let info = image::inspect(&found)?;
    qemu_img::check(flags, &found, &info)?;
    Ok(Some((found, info)))
}
