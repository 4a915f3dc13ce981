//! Where the image of a container disk is. virt-handler binds it to `disk_<i>.img` (`disk_0.img`)
//! in `--container-disk-dir`; with `--image-volume` the whole image is mounted read-only at
//! `/var/run/kubevirt-image-volume/disk_<i>`, and the launcher finds the disk in it.

use super::error::unusable;
use super::safe_path::{Dir, Found, optional};
use super::{LauncherFlags, PodError};
use api::pod_paths::{self, PodPaths};
use api::vmi::firmware::KernelBootContainer;
use api::vmi::volumes::ContainerDiskSource;

/// Finds the image of the container disk that is `spec.volumes[index]`.
pub(super) fn image(
    flags: &LauncherFlags,
    index: usize,
    source: &ContainerDiskSource,
) -> Result<Found, PodError> {
    if flags.image_volume {
        return in_image_volume(flags, index, source);
    }
    let name = pod_paths::container_disk(index);
    let dir = Dir::of_pod(&flags.root, &flags.container_disk_dir)?;
    optional(dir.find(&name))?.ok_or_else(|| {
        let (image, path) = (&source.image, dir.path().join(name));
        unusable!(
            "no image of the container disk {image:?} at {}; has virt-handler mounted it?",
            path.display()
        )
    })
}

fn in_image_volume(
    flags: &LauncherFlags,
    index: usize,
    source: &ContainerDiskSource,
) -> Result<Found, PodError> {
    let place = PodPaths::default().image_volume(index);
    let not_there = |what: &str| {
        let (image, mount) = (&source.image, flags.root.path(&place));
        unusable!(
            "no {what} in the container disk {image:?}, mounted at {}; put the disk's image there, or name it in the VMI (containerDisk.path)",
            mount.display()
        )
    };
    let mount = optional(Dir::of_pod(&flags.root, &place))?.ok_or_else(|| not_there("mount"))?;
    if !source.path.is_empty() {
        return optional(mount.find_within(&source.path))?.ok_or_else(|| not_there(&source.path));
    }
    // KubeVirt v1.10: an OCI artifact is its single file; v1.9 refuses it.
    if let [name] = mount.entries()?.as_slice()
        && optional(mount.sub_within(name))?.is_none()
    {
        return mount.find_within(name);
    }
    let default = optional(mount.sub_within(pod_paths::CONTAINER_DISK_IMAGE_DIR))?
        .ok_or_else(|| not_there("single file or directory /disk"))?;
    match default.entries()?.as_slice() {
        [name] => mount.find_within(&format!("{}/{name}", pod_paths::CONTAINER_DISK_IMAGE_DIR)),
        [] => Err(not_there("file below /disk")),
        names => Err(unusable!(
            "the container disk {:?} has several files in /disk ({}); one is allowed, or name it in the VMI (containerDisk.path)",
            source.image,
            names.join(", ")
        )),
    }
}

/// Finds a file of the kernel boot container: in the image volume, else where virt-handler put it.
pub(super) fn boot_artifact(
    flags: &LauncherFlags,
    container: &KernelBootContainer,
    artifact: &str,
) -> Result<Found, PodError> {
    let (place, tail) = if flags.image_volume {
        (pod_paths::KERNEL_BOOT_VOLUME.to_owned(), artifact)
    } else {
        (flags.kernel_boot_dir(), pod_paths::file_name(artifact))
    };
    let found = Dir::of_pod(&flags.root, &place).and_then(|dir| match flags.image_volume {
        true => dir.find_within(tail),
        false => dir.find(tail),
    });
    optional(found)?.ok_or_else(|| {
        let (image, dir) = (&container.image, flags.root.path(&place));
        unusable!(
            "no {artifact:?} of the kernel boot container {image:?} below {}; is the path in the VMI right?",
            dir.display()
        )
    })
}
