//! Resizes the disks on PersistentVolumeClaims that have grown (`virDomainBlockResize`).

use std::collections::{BTreeMap, BTreeSet};

use crate::launcher::pod_backend::PodBackend;
use api::vmi::Vmi;
use convert::plan::{DiskSize, NewSize, Resize};
use domain::DomainSpec;
use domain::disks::Disk;

/// Sizes of the live disks on claims, by target device. If a size is unknown, the disk is left out,
/// the reason is logged, and the next sync tries again.
pub(in crate::launcher) fn sizes(
    domain: &libvirt::Domain,
    pod: &dyn PodBackend,
    vmi: &Vmi,
    live: &DomainSpec,
    wanted: &DomainSpec,
) -> BTreeMap<String, DiskSize> {
    let with_claim = vmi
        .status
        .volume_status
        .iter()
        .filter(|status| status.persistent_volume_claim_info.is_some());
    let claims: BTreeSet<&String> = with_claim.map(|status| &status.name).collect();
    let targets: BTreeSet<&String> = live
        .devices
        .disks
        .iter()
        .map(|disk| &disk.target.device)
        .collect();
    let of = |disk: &Disk| {
        let (name, target) = (&disk.alias.as_ref()?.name, &disk.target.device);
        let is_candidate =
            claims.contains(name) && targets.contains(target) && disk.source.backend().is_some();
        let size = if is_candidate {
            size(domain, pod, disk)
        } else {
            None
        };
        size.map(|size| (target.clone(), size))
    };
    wanted.devices.disks.iter().filter_map(of).collect()
}

// D-next-5 (docs/differences.md).
fn size(domain: &libvirt::Domain, pod: &dyn PodBackend, disk: &Disk) -> Option<DiskSize> {
    let unknown = |reason: String| {
        tracing::warn!(target_device = %disk.target.device, reason, "The disk cannot be checked for growth");
    };
    let available = pod
        .max_size(disk)
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

/// Resizes the disks in QEMU; the guest sees the new size at once. A failure is logged but does not
/// fail the sync: the guest keeps the old size.
pub(in crate::launcher) fn resize(domain: &libvirt::ChangeableDomain, resizes: &[Resize]) {
    for Resize { change, to } in resizes {
        let target = change.disk.target.device.as_str();
        let resized = match to {
            NewSize::Bytes(bytes) => domain.block_resize(target, *bytes),
            NewSize::Device => domain.block_resize_to_capacity(target),
        };
        match resized {
            Ok(()) => tracing::info!(target_device = target, why = %change.why, "Resized disk"),
            Err(error) => {
                tracing::error!(target_device = target, why = %change.why, reason = %error, "Could not resize disk")
            }
        }
    }
}
