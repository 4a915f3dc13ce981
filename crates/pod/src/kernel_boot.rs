//! Kernel and initrd of the kernel boot container (`firmware.kernelBoot`).

use super::safe_path::Dir;
use super::{LauncherFlags, PodError, container_disk, staged};
use api::pod_paths;
use api::vmi::Vmi;

/// Checks that kernel and initrd are there (`kernelPath`, `initrdPath`). With image volumes, links
/// them to where the domain expects them.
pub(super) fn prepare(flags: &LauncherFlags, vmi: &Vmi) -> Result<(), PodError> {
    let boot = vmi
        .spec
        .domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.kernel_boot.as_ref());
    let Some(container) = boot.and_then(|boot| boot.container.as_ref()) else {
        return Ok(());
    };
    for artifact in [&container.kernel_path, &container.initrd_path]
        .into_iter()
        .filter(|path| !path.is_empty())
    {
        let found = container_disk::boot_artifact(flags, container, artifact)?;
        if flags.image_volume {
            let dir = Dir::of_pod_made(&flags.root, &flags.kernel_boot_dir())?;
            staged::link(&dir, pod_paths::file_name(artifact), &found.real_path()?)?;
        }
    }
    Ok(())
}
