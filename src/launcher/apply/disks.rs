//! Changes one disk of the running domain.

use std::sync::Mutex;

use super::detach::{DetachRequests, attach, detach};
use super::error::{DeviceFailure, DiskError};
use crate::launcher::pod_backend::PodBackend;
use api::vmi::Vmi;
use convert::plan::{DiskChange, Verb};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::disks::Disk;
use os::failpoints;

// D-disk-10 (docs/differences.md).
pub(super) fn change(
    domain: &libvirt::ChangeableDomain,
    pod: &dyn PodBackend,
    vmi: &Vmi,
    verb: Verb,
    DiskChange { disk, why }: &DiskChange,
    requests: &Mutex<DetachRequests>,
) -> Result<(), DeviceFailure> {
    // The volume's name is also the disk's alias.
    let volume = disk.alias.as_ref().map(|alias| alias.name.clone());
    let (volume, target) = (volume.unwrap_or_default(), disk.target.device.clone());
    let alias = disk.alias.as_ref().map(Alias::qualified);
    let alias = alias.unwrap_or_default();
    let changed = match verb {
        Verb::Detach => {
            tracing::info!(volume, target, %why, "Detaching disk");
            failpoints::hit("unplug.prepared");
            let detached = detach(domain, &alias, &disk.to_xml(), requests);
            failpoints::hit("unplug.asked");
            detached.map_err(DiskError::from)
        }
        Verb::Attach => {
            tracing::info!(volume, target, %why, "Attaching disk");
            let attached = attachable(pod, vmi, disk).and_then(|disk| {
                failpoints::hit("plug.prepared");
                Ok(attach(domain, &alias, &disk.to_xml(), requests)?)
            });
            failpoints::hit("plug.attached");
            attached
        }
        Verb::Update => {
            tracing::info!(volume, target, %why, "Updating disk");
            domain
                .update_device(&disk.to_xml())
                .map_err(DiskError::from)
        }
    };
    changed.map_err(|cause| DeviceFailure::Disk {
        volume,
        target,
        verb,
        cause,
    })
}

/// The disk with its overlay, and with the modes (`cache` and `io` of `<driver>`) that its file
/// allows.
fn attachable(pod: &dyn PodBackend, vmi: &Vmi, disk: &Disk) -> Result<Disk, DiskError> {
    pod::track(pod.flags(), vmi, disk)?;
    let mut alone = DomainSpec::default();
    alone.devices.disks.push(disk.clone());
    pod.resolve_disk_modes(&mut alone)?;
    Ok(alone.devices.disks.pop().unwrap_or_else(|| disk.clone()))
}
