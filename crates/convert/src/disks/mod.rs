//! `<disk>`: disks, LUNs and CD-ROM drives.
//!
//! ```text
//! spec.domain.devices.disks[i] ──► target (name on the bus, cache, queues, …)   this file, names
//! spec.volumes of that name    ──► source (path, format)                        source
//! status.volumeStatus          ──► known names, capacity
//! context                      ──► is it a block device, is it there yet, …
//! ```
//!
//! A disk whose volume is not there yet is left out of the domain; it has used up its name, its
//! SCSI unit and its I/O thread all the same, so that nothing moves when it comes.

mod block_size;
mod names;
mod source;

use names::Names;

use super::iothreads::Assignment;
use super::pci::{malformed_address, parse_address};
use super::{ConvertError, Draft, Input};
use api::vmi::Text;
use api::vmi::disks::Disk as VmiDisk;
use api::vmi::status::{PersistentVolumeClaimInfo, VolumeStatus};
use domain::alias::Alias;
use domain::devices::{Address, BootOrder};
use domain::disks::{Disk, DiskDriver, ReadOnly, Reservations, Shareable, SourceReservations};

/// The I/O error policies of KubeVirt's API.
const ERROR_POLICIES: [&str; 4] = ["stop", "ignore", "report", "enospace"];

/// The buses of KubeVirt's API.
const BUSES: [&str; 4] = ["virtio", "scsi", "sata", "usb"];

/// All disks, in the order of the VMI.
pub(super) fn apply(input: &Input<'_>, draft: &mut Draft) -> Result<(), ConvertError> {
    let disks = &input.vmi.spec.domain.devices.disks;
    let mut names = Names::new(&input.vmi.status.volume_status, disks);
    let mut threads = input.iothreads.map(Assignment::new);
    draft.domain.devices.disks.reserve(disks.len());
    for (index, wanted) in disks.iter().enumerate() {
        let mut disk = target(input, index, wanted, &mut names)?;
        let volume = source::find(input, &wanted.name);
        source::apply(input, index, wanted, volume, &mut disk)?;
        block_size::apply(input, index, wanted, &mut disk)?;
        let driver = disk.driver.get_or_insert_default();
        driver.error_policy = error_policy(index, wanted)?;
        if let Some(threads) = &mut threads {
            threads.assign(wanted, &disk.target.bus, driver);
        }
        if volume.is_none() || is_there(input, &wanted.name) {
            draft.domain.devices.disks.push(disk);
        }
    }
    Ok(())
}

/// Admission lets no other bus through; without it, libvirt would refuse one with less to go by.
fn check_bus(index: usize, wanted: &VmiDisk) -> Result<(), ConvertError> {
    let bus = wanted.bus();
    if bus.is_empty() || BUSES.contains(&bus.as_str()) {
        return Ok(());
    }
    let kind = if wanted.disk.is_some() {
        "disk.bus"
    } else if wanted.lun.is_some() {
        "lun.bus"
    } else {
        "cdrom.bus"
    };
    Err(ConvertError::new(
        field(index, kind),
        format!(
            "{bus:?} is not a bus of KubeVirt's; allowed are {}",
            BUSES.join(", ")
        ),
    ))
}

/// Path of a field of the disk, for errors.
fn field(index: usize, member: &str) -> String {
    format!("spec.domain.devices.disks[{index}].{member}")
}

/// Whether the volume can be used: it came with the pod, or has been hotplugged and mounted.
/// Before the status tells of any volume, all of them count as there.
fn is_there(input: &Input<'_>, volume: &Text) -> bool {
    let permanent = &input.ctx.permanent_volumes;
    let mounted = |status: &VolumeStatus| matches!(status.phase.as_str(), "MountedToPod" | "Ready");
    permanent.is_empty()
        || permanent.contains_key(volume)
        || input.ctx.hotplug_volumes.get(volume).is_some_and(mounted)
}

/// What the disk is for the guest, and how QEMU drives it; all but where its data comes from.
fn target(
    input: &Input<'_>,
    index: usize,
    wanted: &VmiDisk,
    names: &mut Names,
) -> Result<Disk, ConvertError> {
    check_bus(index, wanted)?;
    let mut disk = Disk {
        alias: Some(Alias::user(wanted.name.clone())),
        ..Disk::default()
    };
    let mut cache = wanted.cache.clone();
    if let Some(target) = &wanted.disk {
        disk.device = Text::const_new("disk");
        name(&mut disk, wanted, names, true);
        if !target.pci_address.is_empty() {
            if target.bus != "virtio" {
                return Err(ConvertError::new(
                    field(index, "disk.pciAddress"),
                    format!(
                        "the bus is {:?}; only a disk on the bus \"virtio\" can have a PCI address",
                        target.bus
                    ),
                ));
            }
            let address = parse_address(&target.pci_address);
            let malformed = || {
                ConvertError::new(
                    field(index, "disk.pciAddress"),
                    malformed_address(&target.pci_address),
                )
            };
            disk.address = Some(address.ok_or_else(malformed)?);
        }
        if target.bus == "virtio" {
            disk.model = input.disk_virtio_model.clone();
        }
        disk.read_only = target.readonly.then_some(ReadOnly {});
        disk.serial = wanted.serial.clone();
        if wanted.shareable == Some(true) {
            if cache.is_empty() {
                cache = Text::const_new("none");
            }
            if cache != "none" {
                return Err(ConvertError::new(
                    field(index, "cache"),
                    format!(
                        "{cache:?} is not possible for a shareable disk, it would lose writes of others; allowed is \"none\""
                    ),
                ));
            }
            disk.shareable = Some(Shareable {});
        }
    } else if let Some(target) = &wanted.lun {
        disk.device = Text::const_new("lun");
        name(&mut disk, wanted, names, true);
        disk.read_only = target.readonly.then_some(ReadOnly {});
        disk.source.reservations = target.reservation.then(|| reservations(input));
    } else if let Some(target) = &wanted.cdrom {
        disk.device = Text::const_new("cdrom");
        disk.target.tray = target.tray.clone();
        name(&mut disk, wanted, names, false);
        disk.read_only = target.readonly.unwrap_or(true).then_some(ReadOnly {});
    }
    let is_virtio = disk.target.bus == "virtio";
    let mut driver = DiskDriver {
        name: Text::const_new("qemu"),
        cache,
        io: wanted.io.clone(),
        ..DiskDriver::default()
    };
    if wanted.disk.is_some() || wanted.lun.is_some() {
        if !input.ctx.volumes_discard_ignore.contains(&wanted.name) {
            driver.discard = Text::const_new("unmap");
        }
        capacity(input, &wanted.name, &mut disk)?;
    }
    if is_virtio && input.vmi.spec.domain.devices.block_multi_queue == Some(true) {
        driver.queues = Some(input.queues());
    }
    if is_virtio {
        driver.iommu = input.iommu_mark();
    }
    disk.driver = Some(driver);
    disk.boot_order = wanted.boot_order.map(|order| BootOrder { order });
    Ok(disk)
}

/// Bus and name; on SCSI a disk or LUN (`units`) also has the unit that belongs to the name.
fn name(disk: &mut Disk, wanted: &VmiDisk, names: &mut Names, units: bool) {
    let bus = wanted.bus();
    let (device, unit) = names.name(&wanted.name, bus);
    if units && bus == "scsi" {
        disk.address = Some(Address {
            r#type: Text::const_new("drive"),
            controller: Text::const_new("0"),
            bus: Text::const_new("0"),
            unit: compact_str::format_compact!("{unit}"),
            ..Address::default()
        });
    }
    disk.target.device = device;
    disk.target.bus = bus.clone();
}

/// SCSI persistent reservations go through a helper on the node.
fn reservations(input: &Input<'_>) -> Reservations {
    Reservations {
        managed: Text::const_new("no"),
        migration: Text::const_new("yes"),
        source_reservations: Some(SourceReservations {
            r#type: Text::const_new("unix"),
            path: input.paths.reservation_socket(),
            mode: Text::const_new("client"),
        }),
    }
}

/// Capacity and file system overhead of the claim, which later resizing looks at.
fn capacity(input: &Input<'_>, volume: &Text, disk: &mut Disk) -> Result<(), ConvertError> {
    let statuses = &input.vmi.status.volume_status;
    let at = statuses.iter().rposition(|status| status.name == *volume);
    let claim =
        at.and_then(|at| Some((at, statuses.get(at)?.persistent_volume_claim_info.as_ref()?)));
    if let Some((at, claim)) = claim {
        disk.filesystem_overhead = claim.filesystem_overhead.clone();
        disk.capacity = smaller_of_capacity_and_request(claim, at)?;
    }
    Ok(())
}

fn smaller_of_capacity_and_request(
    claim: &PersistentVolumeClaimInfo,
    at: usize,
) -> Result<Option<i64>, ConvertError> {
    let sizes =
        [("capacity", &claim.capacity), ("requests", &claim.requests)].map(|(list, sizes)| {
            let size = sizes
                .get("storage")
                .map(api::vmi::Quantity::as_integer)
                .transpose();
            size.map(Option::flatten).map_err(|e| {
                let field =
                    format!("status.volumeStatus[{at}].persistentVolumeClaimInfo.{list}.storage");
                ConvertError::new(field, e.to_string())
            })
        });
    let [capacity, request] = sizes;
    Ok(capacity?
        .zip(request?)
        .map(|(capacity, request)| capacity.min(request)))
}

fn error_policy(index: usize, wanted: &VmiDisk) -> Result<Text, ConvertError> {
    match &wanted.error_policy {
        None => Ok(Text::const_new("stop")),
        Some(policy) if ERROR_POLICIES.contains(&policy.as_str()) => Ok(policy.clone()),
        Some(policy) => Err(ConvertError::new(
            field(index, "errorPolicy"),
            format!(
                "{policy:?} is no error policy; allowed are {}",
                ERROR_POLICIES.join(", ")
            ),
        )),
    }
}
