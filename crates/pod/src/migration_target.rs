//! The pod as the target of a live migration: the differences from a start.

use rustix::fs::OFlags;

use super::error::unusable;
use super::machine::Machine;
use super::ownership::give_to_qemu;
use super::safe_path::{Dir, optional};
use super::volumes::ContainerDisks;
use super::{LauncherFlags, PodError, collect, host_devices, tracking};
use api::pod_paths::MIGRATION_SOCKET_DIR;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use api::vmi::volumes::{Volume, VolumeSource as Source};
use convert::Context;
use domain::disks::Disk;

/// Reads the pod, the machine and the options of the request for a domain that comes from another
/// node. Its host devices stay behind, but for a single vGPU where the cluster lets that migrate.
/// Blocks; changes nothing.
///
/// # Errors
/// Those of [`collect_context`](super::collect_context), or the VMI has several vGPUs.
pub fn collect_migration_target(
    flags: &LauncherFlags,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
) -> Result<Context, PodError> {
    let machine = Machine::this();
    let known = ContainerDisks::default();
    let mut ctx = collect::collect_without_host_devices(&machine, flags, vmi, options, &known)?;
    let cluster = options.cluster_config.unwrap_or_default();
    if cluster.vgpu_live_migration_enabled {
        host_devices::collect_migratable_gpu(&flags.root, &machine, vmi, &mut ctx)?;
    }
    Ok(ctx)
}

/// Makes the overlay that tracks the changed blocks of the disk, if the source's overlay is on
/// another volume (`sourcePersistentStatePVCName`, `targetPersistentStatePVCName`) and does not
/// come along. Otherwise the source's overlay is there already.
///
/// # Errors
/// It cannot be made.
pub fn track_migrated(flags: &LauncherFlags, vmi: &Vmi, disk: &Disk) -> Result<(), PodError> {
    let state = vmi.status.migration_state.as_ref();
    let is_new = state.is_some_and(|state| {
        let source = &state.source_persistent_state_pvc_name;
        let target = &state.target_persistent_state_pvc_name;
        !source.is_empty() && !target.is_empty() && source != target
    });
    if is_new {
        tracking::make_anew(flags, disk)
    } else {
        Ok(())
    }
}

/// Makes the directory in which QEMU listens for the source's data, and gives it to QEMU's user.
///
/// # Errors
/// It cannot be made.
pub fn migration_socket_dir(flags: &LauncherFlags) -> Result<(), PodError> {
    let path = format!(
        "{}/{MIGRATION_SOCKET_DIR}",
        flags.share_dir.trim_end_matches('/')
    );
    Dir::make(&flags.root, &path, 0o755)?;
    let dir = Dir::of_pod(&flags.root, &path)?;
    give_to_qemu(&dir, dir.path())
}

/// Whether virt-handler has mounted all hotplugged volumes. A VM that moves to another cluster
/// brings them with it from the beginning.
///
/// # Errors
/// Some are missing, or cannot be opened; virt-handler tries again.
pub fn check_hotplugged_volumes(flags: &LauncherFlags, vmi: &Vmi) -> Result<(), PodError> {
    let is_hotpluggable = |volume: &&Volume| match volume.source() {
        Some(Source::PersistentVolumeClaim(claim)) => claim.hotpluggable,
        Some(Source::DataVolume(source)) => source.hotpluggable,
        _ => false,
    };
    let expected = vmi.spec.volumes.iter().filter(is_hotpluggable).count();
    if expected == 0 {
        return Ok(());
    }
    let Some(dir) = optional(Dir::of_pod(&flags.root, flags.hotplug_dir()))? else {
        return Ok(());
    };
    let names = dir.entries()?;
    let is_ready = |name: &String| match optional(dir.find(name)) {
        Ok(Some(found)) if found.is_block() => Ok(found.read().is_ok()),
        // virt-handler makes an empty file to mount the real one on.
        Ok(Some(found)) => Ok(found.stat().st_size > 0 && found.open(OFlags::RDWR).is_ok()),
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    };
    let mut ready = 0;
    for name in &names {
        ready += usize::from(is_ready(name)?);
    }
    if names.len() == expected && ready == expected {
        return Ok(());
    }
    let (dir, found) = (dir.path().display(), names.len());
    Err(unusable!(
        "{dir} has {found} hotplugged volumes, {ready} of them ready; the VMI has {expected}"
    ))
}
