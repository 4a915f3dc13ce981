//! How the guest sees a disk, and how QEMU drives it: device, bus and name, cache, queues; all but
//! where its data comes from.

use super::super::{ConvertError, Input};
use super::Wanted;
use super::names::Names;
use api::vmi::disks::{CdRomTarget, DiskTarget, LunTarget};
use domain::YesNo;
use domain::address::{Address, AddressType, BootOrder};
use domain::alias::Alias;
use domain::disks::{
    CacheMode, DiscardMode, Disk, DiskBus, DiskDevice, DiskDriver, ReadOnly, Reservations,
    Shareable, SourceReservations,
};
use domain::{PciAddress, PciAddressError};

/// The disk with its `<boot order>`, still without its source.
pub(super) fn target(
    input: &Input<'_>,
    wanted: Wanted<'_>,
    names: &mut Names,
) -> Result<Disk, ConvertError> {
    let bus = bus(wanted)?;
    let mut disk = Disk {
        alias: Some(Alias::user(wanted.disk.name.clone())),
        boot_order: wanted.disk.boot_order.map(|order| BootOrder { order }),
        ..Disk::default()
    };
    if wanted.disk.has_device() {
        name(&mut disk, wanted, &bus, names);
    }
    disk.driver = Some(driver(input, wanted, &disk.target.bus));
    if let Some(target) = &wanted.disk.disk {
        plain_disk(input, wanted, target, &mut disk)?;
    } else if let Some(target) = &wanted.disk.lun {
        lun(input, wanted, target, &mut disk)?;
    } else if let Some(target) = &wanted.disk.cdrom {
        cdrom(target, &mut disk);
    }
    Ok(disk)
}

/// virt-api sets the default disk bus and lets no other bus than these through; without this check,
/// libvirt's refusal would say less.
fn bus(wanted: Wanted<'_>) -> Result<DiskBus, ConvertError> {
    let bus = DiskBus::from(wanted.disk.bus().as_str());
    match bus {
        DiskBus::Unset | DiskBus::Virtio | DiskBus::Scsi | DiskBus::Sata | DiskBus::Usb => Ok(bus),
        DiskBus::Ide | DiskBus::Fdc | DiskBus::Other(_) => {
            let field = if wanted.disk.disk.is_some() {
                "disk.bus"
            } else if wanted.disk.lun.is_some() {
                "lun.bus"
            } else {
                "cdrom.bus"
            };
            let reason = format!(
                "unsupported disk bus {:?}; supported are virtio, scsi, sata, usb",
                bus.as_str()
            );
            Err(wanted.refuse(field, reason))
        }
    }
}

/// Bus and name; on SCSI a disk or LUN also has the unit that belongs to the name.
fn name(disk: &mut Disk, wanted: Wanted<'_>, bus: &DiskBus, names: &mut Names) {
    let (device, unit) = names.name(&wanted.disk.name, bus);
    let is_cdrom = wanted.disk.disk.is_none() && wanted.disk.lun.is_none();
    if *bus == DiskBus::Scsi && !is_cdrom {
        disk.address = Some(Address {
            r#type: AddressType::Drive,
            controller: String::from("0"),
            bus: String::from("0"),
            unit: format!("{unit}"),
            ..Address::default()
        });
    }
    disk.target.device = device;
    disk.target.bus = bus.clone();
}

/// `<driver>`: `cache`, `io`, and with `blockMultiQueue` one queue for each vCPU.
fn driver(input: &Input<'_>, wanted: Wanted<'_>, bus: &DiskBus) -> DiskDriver {
    let mut driver = DiskDriver {
        name: String::from("qemu"),
        cache: wanted.disk.cache.as_str().into(),
        io: wanted.disk.io.as_str().into(),
        ..DiskDriver::default()
    };
    if *bus == DiskBus::Virtio {
        driver.iommu = input.virtio_iommu();
        if input.devices.block_multi_queue == Some(true) {
            driver.queues = Some(input.queues());
        }
    }
    driver
}

/// `<disk device='disk'>`: model, PCI address, `<readonly>` and `<serial>`.
fn plain_disk(
    input: &Input<'_>,
    wanted: Wanted<'_>,
    target: &DiskTarget,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    disk.device = DiskDevice::Disk;
    let is_virtio = disk.target.bus == DiskBus::Virtio;
    if !target.pci_address.is_empty() {
        const FIELD: &str = "disk.pciAddress";
        if !is_virtio {
            let reason = format!(
                "the bus is {:?}; only a disk on the bus \"virtio\" can have a PCI address",
                target.bus
            );
            return Err(wanted.refuse(FIELD, reason));
        }
        let address: PciAddress = (target.pci_address.parse())
            .map_err(|error: PciAddressError| wanted.refuse(FIELD, error))?;
        disk.address = Some(address.into());
    }
    if is_virtio {
        disk.model = input.disk_virtio_model.clone();
    }
    disk.read_only = target.readonly.then_some(ReadOnly {});
    disk.serial = wanted.disk.serial.clone();
    if wanted.disk.shareable == Some(true) {
        share(wanted, disk)?;
    }
    discard_and_capacity(input, &wanted.disk.name, disk)
}

/// A disk that other guests write at the same time (`<shareable>`) cannot be cached.
fn share(wanted: Wanted<'_>, disk: &mut Disk) -> Result<(), ConvertError> {
    let driver = disk.driver.get_or_insert_default();
    match &driver.cache {
        CacheMode::Unset => driver.cache = CacheMode::None,
        CacheMode::None => {}
        other => {
            return Err(wanted.refuse(
                "cache",
                format!(
                    "{:?} is not possible for a shareable disk, it would lose writes of other guests; allowed is \"none\"",
                    other.as_str()
                ),
            ));
        }
    }
    disk.shareable = Some(Shareable {});
    Ok(())
}

fn lun(
    input: &Input<'_>,
    wanted: Wanted<'_>,
    target: &LunTarget,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    disk.device = DiskDevice::Lun;
    disk.read_only = target.readonly.then_some(ReadOnly {});
    disk.source.reservations = target.reservation.then(|| reservations(input));
    discard_and_capacity(input, &wanted.disk.name, disk)
}

fn cdrom(target: &CdRomTarget, disk: &mut Disk) {
    disk.device = DiskDevice::CdRom;
    disk.target.tray = target.tray.clone();
    disk.read_only = target.readonly.unwrap_or(true).then_some(ReadOnly {});
}

/// `<reservations>`: SCSI persistent reservations go through the node's pr-helper.
fn reservations(input: &Input<'_>) -> Reservations {
    Reservations {
        managed: YesNo::No,
        migration: YesNo::Yes,
        source_reservations: Some(SourceReservations {
            r#type: String::from("unix"),
            path: input.paths.reservation_socket(),
            mode: String::from("client"),
        }),
    }
}

/// `discard='unmap'` unless the volume is one of `PreallocatedVolumes`; `source.rs` sets it for
/// overlays over images, empty disks and empty drives in any case. A later resize needs the claim's
/// capacity and `filesystemOverhead`.
fn discard_and_capacity(
    input: &Input<'_>,
    volume: &String,
    disk: &mut Disk,
) -> Result<(), ConvertError> {
    if !input.ctx.volumes_discard_ignore.contains(volume) {
        disk.driver.get_or_insert_default().discard = DiscardMode::Unmap;
    }
    let statuses = &input.vmi.status.volume_status;
    let at = statuses.iter().rposition(|status| status.name == *volume);
    let claim =
        at.and_then(|at| Some((at, statuses.get(at)?.persistent_volume_claim_info.as_ref()?)));
    if let Some((at, claim)) = claim {
        disk.filesystem_overhead = claim.filesystem_overhead.clone();
        disk.capacity = claim.size().map_err(|(list, error)| {
            let info = format!("status.volumeStatus[{at}].persistentVolumeClaimInfo");
            ConvertError::new(format!("{info}.{list}.storage"), error)
        })?;
    }
    Ok(())
}
