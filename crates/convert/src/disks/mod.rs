//! `<disk>`: disks, LUNs and CD-ROM drives.
//!
//! ```text
//! spec.domain.devices.disks[i] ──► how the guest sees it, and how QEMU drives it   target, names
//! spec.volumes of that name    ──► source (path, format)                           source
//! blockSize                    ──► block sizes                                     block_size
//! status.volumeStatus          ──► known names, capacity
//! context                      ──► whether it is a block device, whether it is mounted, …
//! ```
//!
//! A disk whose hotplugged volume is not mounted yet is left out of the domain; its
//! name, its SCSI unit and its I/O thread stay reserved, so that other disks keep theirs later.

mod block_size;
mod names;
mod source;
mod target;

use names::Names;

use super::iothreads::Assignment;
use super::{ConvertError, DomainSpec, Input};
use api::vmi::disks::Disk as VmiDisk;
use api::vmi::status::VolumeStatus;
use domain::disks::ErrorPolicy;

/// A disk of the VMI, with its place in the list.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    index: usize,
    disk: &'a VmiDisk,
}

impl Wanted<'_> {
    /// A refusal of one of the disk's fields.
    fn refuse(&self, member: &str, reason: impl std::fmt::Display) -> ConvertError {
        let field = format!("spec.domain.devices.disks[{}].{member}", self.index);
        ConvertError::new(field, reason)
    }
}

/// All disks, in the order of the VMI.
pub(super) fn apply(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let disks = &input.devices.disks;
    let mut names = Names::new(&input.vmi.status.volume_status, disks);
    let mut threads = input.iothreads.map(Assignment::new);
    domain.devices.disks.reserve(disks.len());
    for (index, disk) in disks.iter().enumerate() {
        let wanted = Wanted { index, disk };
        let mut disk = target::target(input, wanted, &mut names)?;
        let volume = source::find(input, &wanted.disk.name);
        source::apply(input, wanted, volume, &mut disk)?;
        block_size::apply(input, wanted, &mut disk)?;
        let driver = disk.driver.get_or_insert_default();
        driver.error_policy = error_policy(wanted)?;
        if let Some(threads) = &mut threads {
            threads.assign(wanted.disk, &disk.target.bus, driver);
        }
        if volume.is_none() || is_mounted(input, &wanted.disk.name) {
            domain.devices.disks.push(disk);
        }
    }
    Ok(())
}

/// Whether the volume can be used: it came with the pod, or has been hotplugged and mounted.
/// Without any permanent volume in the context, all of them count as mounted.
fn is_mounted(input: &Input<'_>, volume: &String) -> bool {
    let permanent = &input.ctx.permanent_volumes;
    let mounted = |status: &VolumeStatus| matches!(status.phase.as_str(), "MountedToPod" | "Ready");
    permanent.is_empty()
        || permanent.contains_key(volume)
        || input.ctx.hotplug_volumes.get(volume).is_some_and(mounted)
}

/// The guest is paused unless the VMI says otherwise.
fn error_policy(wanted: Wanted<'_>) -> Result<ErrorPolicy, ConvertError> {
    let Some(policy) = &wanted.disk.error_policy else {
        return Ok(ErrorPolicy::Stop);
    };
    match ErrorPolicy::from(policy.as_str()) {
        ErrorPolicy::Unset | ErrorPolicy::Other(_) => Err(wanted.refuse(
            "errorPolicy",
            format!(
                "unsupported error policy {policy:?}; supported are stop, ignore, report, enospace"
            ),
        )),
        policy => Ok(policy),
    }
}
