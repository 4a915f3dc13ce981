//! Resizes the disks on PersistentVolumeClaims that have grown (`virDomainBlockResize`).

use crate::launcher::pod_backend::PodBackend;
use api::vmi::Vmi;
use convert::plan::{self, DiskSize, Resize};
use domain::DomainSpec;
use domain::disks::Disk;

/// The `live` disks that grow with their claims, whatever `ExpandDisksEnabled` says. If a size is
/// unknown, the disk is left out, the reason is logged, and the next sync tries again.
pub(super) fn resizes(
    domain: &libvirt::DomainHandle,
    pod: &dyn PodBackend,
    vmi: &Vmi,
    live: &DomainSpec,
    wanted: &DomainSpec,
) -> Vec<Resize> {
    let has_claim = |name: &String| {
        let mut volumes = vmi.status.volume_status.iter();
        volumes.any(|it| it.name == *name && it.persistent_volume_claim_info.is_some())
    };
    plan::resizes(live, wanted, |disk| {
        let is_on_claim = has_claim(&disk.alias.as_ref()?.name) && disk.source.backend().is_some();
        is_on_claim.then(|| size(domain, pod, disk))?
    })
}

// D-next-5 (docs/differences.md).
fn size(domain: &libvirt::DomainHandle, pod: &dyn PodBackend, disk: &Disk) -> Option<DiskSize> {
    let unknown = |reason: String| {
        tracing::warn!(target_device = %disk.target.device, reason, "The disk cannot be checked for growth");
    };
    let available = pod::max_size(pod.flags(), disk)
        .map_err(|error| unknown(os::logging::chain(&error)))
        .ok()??;
    let info = domain
        .block_info(&disk.target.device)
        .map_err(|error| unknown(error.to_string()))
        .ok()?;
    Some(DiskSize {
        current: info.capacity,
        available,
    })
}

/// Resizes a disk in QEMU; the guest sees the new size at once. A failure is logged but does not
/// fail the sync: the guest keeps the old size.
pub(super) fn resize(domain: &libvirt::ChangeableDomain, Resize { change, bytes }: &Resize) {
    let target = change.disk.target.device.as_str();
    let resized = match bytes {
        Some(bytes) => domain.block_resize(target, *bytes),
        None => domain.block_resize_to_capacity(target),
    };
    match resized {
        Ok(()) => tracing::info!(target_device = target, why = %change.why, "Resized disk"),
        Err(error) => {
            tracing::error!(target_device = target, why = %change.why, reason = %error, "Could not resize disk")
        }
    }
}
