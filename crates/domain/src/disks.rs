//! `<disk>`: disks, LUNs, CD-ROM and floppy drives.
//!
//! libvirt: [hard drives floppy disks
//! cdroms](https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms)
use super::address::{Address, BootOrder};
use super::alias::Alias;
use super::vocabulary::{OnOff, YesNo, vocabulary};
use super::xml::elements;

vocabulary! {
/// What kind of drive the guest sees.
DiskDevice {
    Disk = "disk",
    /// A SCSI device of the host, with its own commands.
    Lun = "lun",
    CdRom = "cdrom",
    Floppy = "floppy",
}
DiskType {
    File = "file",
    Block = "block",
    Network = "network",
}
/// The bus that a disk is on.
DiskBus {
    Virtio = "virtio",
    Scsi = "scsi",
    Sata = "sata",
    Usb = "usb",
    Ide = "ide",
    Fdc = "fdc",
}
/// How the host caches a disk.
CacheMode {
    /// Past the host's page cache (`O_DIRECT`).
    None = "none",
    WriteThrough = "writethrough",
    WriteBack = "writeback",
    DirectSync = "directsync",
    Unsafe = "unsafe",
    Default = "default",
}
/// How QEMU reads and writes a disk.
IoMode {
    /// Linux AIO; needs `O_DIRECT`.
    Native = "native",
    Threads = "threads",
    IoUring = "io_uring",
}
/// What happens when the host cannot write.
ErrorPolicy {
    /// The guest is paused.
    Stop = "stop",
    /// The guest sees the error.
    Report = "report",
    Ignore = "ignore",
    /// Paused when the space has run out, else reported.
    Enospace = "enospace",
}
/// What happens to blocks that the guest discards.
DiscardMode {
    Unmap = "unmap",
    Ignore = "ignore",
}
}

elements! {
/// `<disk>`: a disk, LUN, CD-ROM or floppy drive.
Disk {
    attr "device" "Device" device: DiskDevice,
    /// `no`, `internal`, `external`: what a snapshot of the domain does with the disk.
    attr? "snapshot" "Snapshot" snapshot: String,
    /// Which attribute of the source counts.
    attr "type" "Type" r#type: DiskType,
    child "source" "Source" source: DiskSource,
    child "target" "Target" target: DiskTarget,
    leaf? "serial" "Serial" serial: String,
    child "driver" "Driver" driver: Option<DiskDriver>,
    child "readonly" "ReadOnly" read_only: Option<ReadOnly>,
    child "auth" "Auth" auth: Option<DiskAuth>,
    child "alias" "Alias" alias: Option<Alias>,
    child "backingStore" "BackingStore" backing_store: Option<Box<BackingStore>>,
    child "boot" "BootOrder" boot_order: Option<BootOrder>,
    child "address" "Address" address: Option<Address>,
    /// `virtio-transitional`, `virtio-non-transitional`: which PCI IDs a virtio disk has.
    attr? "model" "Model" model: String,
    child "blockio" "BlockIO" block_io: Option<BlockIo>,
    /// Not libvirt's: a note between conversion and resize.
    leaf? "filesystemOverhead" "FilesystemOverhead" filesystem_overhead: Option<String>,
    /// Not libvirt's: size of the volume in bytes, a note between conversion and resize.
    leaf? "capacity" "Capacity" capacity: Option<i64>,
    child "shareable" "Shareable" shareable: Option<Shareable>,
}
/// `<auth>`: who we are to a network disk.
DiskAuth {
    attr "username" "Username" username: String,
    child "secret" "Secret" secret: Option<DiskSecret>,
}
/// `<secret>`: libvirt's name of the password.
DiskSecret {
    attr "type" "Type" r#type: String,
    attr? "usage" "Usage" usage: String,
    attr? "uuid" "UUID" uuid: String,
}
/// `<readonly>`: the guest cannot write.
ReadOnly {}
/// `<shareable>`: other guests may use the disk at the same time.
Shareable {}
/// `<slices>`: the part of the file that is the disk.
Slice {
    child "slice" "Slice" slice: SliceType,
}
/// `<slice>`: where the part is, in bytes.
SliceType {
    attr "type" "Type" r#type: String,
    attr "offset" "Offset" offset: i64,
    attr "size" "Size" size: i64,
}
/// `<source>`: file, device or network address; empty for an empty drive.
DiskSource {
    attr? "dev" "Dev" dev: String,
    attr? "file" "File" file: String,
    /// `mandatory`, `requisite`, `optional`: what happens when the medium is missing at start.
    attr? "startupPolicy" "StartupPolicy" startup_policy: String,
    attr? "protocol" "Protocol" protocol: String,
    attr? "name" "Name" name: String,
    child "host" "Host" host: Option<DiskSourceHost>,
    child "reservations" "Reservations" reservations: Option<Reservations>,
    child "slices" "Slices" slices: Vec<Slice>,
    child "dataStore" "DataStore" data_store: Option<Box<DataStore>>,
}
/// `<target>`: how the guest sees the disk.
DiskTarget {
    attr? "bus" "Bus" bus: DiskBus,
    /// `vda`, `sdb`, …: names the disk for libvirt, hardly for the guest.
    attr? "dev" "Device" device: String,
    /// `open` where the guest has opened its CD-ROM drive.
    attr? "tray" "Tray" tray: String,
}
/// `<driver>`: format, caching, threads and errors.
DiskDriver {
    attr? "cache" "Cache" cache: CacheMode,
    attr? "error_policy" "ErrorPolicy" error_policy: ErrorPolicy,
    attr? "io" "IO" io: IoMode,
    attr "name" "Name" name: String,
    attr "type" "Type" r#type: String,
    /// The I/O thread that does the work, from 1.
    attr? "iothread" "IOThread" iothread: Option<u64>,
    child "iothreads" "IOThreads" iothreads: Option<DiskIoThreads>,
    attr? "queues" "Queues" queues: Option<u64>,
    attr? "discard" "Discard" discard: DiscardMode,
    attr? "iommu" "IOMMU" iommu: OnOff,
}
/// `<iothreads>`: the I/O threads that share the work.
DiskIoThreads {
    child "iothread" "IOThread" iothread: Vec<DiskIoThread>,
}
/// `<iothread>`: one of them.
DiskIoThread {
    attr "id" "Id" id: u32,
}
/// `<host>`: the server of a network disk.
DiskSourceHost {
    attr "name" "Name" name: String,
    attr? "port" "Port" port: String,
}
/// `<dataStore>`: where a qcow2 file that holds only metadata has its data, see
/// [`DiskSource::backend`].
DataStore {
    attr? "type" "Type" r#type: DiskType,
    child "format" "Format" format: Option<DataStoreFormat>,
    child "source" "Source" source: Option<DiskSource>,
}
/// `<format>`: format of the data.
DataStoreFormat {
    attr "type" "Type" r#type: String,
}
/// `<backingStore>`: the image below; present and empty where there is none.
BackingStore {
    attr? "type" "Type" r#type: DiskType,
    child "format" "Format" format: Option<BackingStoreFormat>,
    child "source" "Source" source: Option<DiskSource>,
}
/// `<format>`: format of the image below.
BackingStoreFormat {
    attr "type" "Type" r#type: String,
}
/// `<blockio>`: block sizes that the guest sees, in bytes.
BlockIo {
    attr? "logical_block_size" "LogicalBlockSize" logical_block_size: u64,
    attr? "physical_block_size" "PhysicalBlockSize" physical_block_size: u64,
    attr? "discard_granularity" "DiscardGranularity" discard_granularity: Option<u64>,
}
/// `<reservations>`: SCSI persistent reservations, by a helper.
Reservations {
    attr? "managed" "Managed" managed: YesNo,
    attr? "migration" "Migration" migration: YesNo,
    child "source" "SourceReservations" source_reservations: Option<SourceReservations>,
}
/// `<source>`: the helper's socket.
SourceReservations {
    attr "type" "Type" r#type: String,
    attr? "path" "Path" path: String,
    attr? "mode" "Mode" mode: String,
}
}

impl Disk {
    /// The volume's name in the VMI; empty for a disk that no volume is behind.
    #[must_use]
    pub fn volume(&self) -> &str {
        self.alias.as_ref().map_or("", |alias| &alias.name)
    }

    /// Whether it is a CD-ROM drive without a medium.
    #[must_use]
    pub fn is_empty_drive(&self) -> bool {
        self.device == DiskDevice::CdRom && self.source.path().is_none()
    }
}

impl DiskSource {
    /// The image file or device that QEMU opens; the overlay if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        [&self.file, &self.dev]
            .into_iter()
            .find(|path| !path.is_empty())
            .map(String::as_str)
    }

    /// The image file or device that holds the volume's data: behind the overlay if there is one
    /// (changed block tracking). `None` for an empty drive and for network disks.
    #[must_use]
    pub fn backend(&self) -> Option<DiskBackend<'_>> {
        let data_store = self
            .data_store
            .as_ref()
            .and_then(|store| store.source.as_ref());
        let own = |source| {
            let path = Self::path(source)?;
            let is_block = source.file.is_empty();
            Some(DiskBackend { path, is_block })
        };
        data_store.and_then(own).or_else(|| own(self))
    }

    /// The path of [`Self::backend`].
    #[must_use]
    pub fn backend_path(&self) -> Option<&str> {
        self.backend().map(|backend| backend.path)
    }
}

/// The image file or device that holds the data of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskBackend<'a> {
    /// Its path; never empty.
    pub path: &'a str,
    /// It is a block device.
    pub is_block: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_behind_the_overlay() {
        let device = DiskSource {
            dev: "/dev/x".into(),
            ..DiskSource::default()
        };
        let behind = |source: Option<DiskSource>| DiskSource {
            file: "/overlay".into(),
            data_store: Some(Box::new(DataStore {
                source,
                ..DataStore::default()
            })),
            ..DiskSource::default()
        };
        let backend = |path, is_block| Some(DiskBackend { path, is_block });
        assert_eq!(device.backend(), backend("/dev/x", true));
        assert_eq!(behind(Some(device)).backend(), backend("/dev/x", true));
        let without_a_path = behind(Some(DiskSource::default()));
        assert_eq!(without_a_path.backend(), backend("/overlay", false));
        assert_eq!(behind(None).backend(), backend("/overlay", false));
        assert_eq!(DiskSource::default().backend(), None);
    }

    #[test]
    fn a_drive_with_a_file_or_device_is_not_empty() {
        let disk = |device, file: &str, dev: &str| Disk {
            device,
            source: DiskSource {
                file: file.into(),
                dev: dev.into(),
                ..DiskSource::default()
            },
            ..Disk::default()
        };
        assert!(disk(DiskDevice::CdRom, "", "").is_empty_drive());
        assert!(!disk(DiskDevice::CdRom, "/a.iso", "").is_empty_drive());
        assert!(!disk(DiskDevice::CdRom, "", "/dev/loop0").is_empty_drive());
        assert!(!disk(DiskDevice::Disk, "", "").is_empty_drive());
    }
}
