//! `spec.domain.devices.disks`, and `spec.domain.ioThreads`.
use super::features::FeatureState;
use crate::api;

api! {
/// `disks` of `Devices`.
Disk {
    "name" name: String,
    "disk" disk: Option<DiskTarget>,
    "lun" lun: Option<LunTarget>,
    "cdrom" cdrom: Option<CdRomTarget>,
    "bootOrder" boot_order: Option<u64>,
    "serial" serial: String,
    "dedicatedIOThread" dedicated_io_thread: Option<bool>,
    "cache" cache: String,
    "io" io: String,
    "blockSize" block_size: Option<BlockSize>,
    "shareable" shareable: Option<bool>,
    "errorPolicy" error_policy: Option<String>,
}
/// `disk` of `Disk`.
DiskTarget {
    "bus" bus: String,
    "readonly" readonly: bool,
    "pciAddress" pci_address: String,
}
/// `lun` of `Disk`.
LunTarget {
    "bus" bus: String,
    "readonly" readonly: bool,
    "reservation" reservation: bool,
}
/// `cdrom` of `Disk`.
CdRomTarget {
    "bus" bus: String,
    "readonly" readonly: Option<bool>,
    "tray" tray: String,
}
/// `blockSize` of `Disk`.
BlockSize {
    "custom" custom: Option<CustomBlockSize>,
    "matchVolume" match_volume: Option<FeatureState>,
}
/// `custom` of `BlockSize`.
CustomBlockSize {
    "logical" logical: u64,
    "physical" physical: u64,
    "discardGranularity" discard_granularity: Option<u64>,
}
/// `ioThreads` of `DomainSpec`.
DiskIoThreads {
    "supplementalPoolThreadCount" supplemental_pool_thread_count: Option<u32>,
}
}

impl Disk {
    /// The bus that it is on, whatever it is; empty if it says nothing.
    #[must_use]
    pub fn bus(&self) -> &String {
        static NONE: String = String::new();
        let disk = self.disk.as_ref().map(|disk| &disk.bus);
        let lun = self.lun.as_ref().map(|lun| &lun.bus);
        let cdrom = self.cdrom.as_ref().map(|cdrom| &cdrom.bus);
        disk.or(lun).or(cdrom).unwrap_or(&NONE)
    }

    /// Whether it names its kind: disk, LUN or CD-ROM.
    #[must_use]
    pub fn has_device(&self) -> bool {
        self.disk.is_some() || self.lun.is_some() || self.cdrom.is_some()
    }
}
