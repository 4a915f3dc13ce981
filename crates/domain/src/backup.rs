//! `<domainbackup>` and `<domaincheckpoint>`: what libvirt is given to begin a backup.
//!
//! libvirt: [backup XML](https://libvirt.org/formatbackup.html), [checkpoint
//! XML](https://libvirt.org/formatcheckpoint.html)
use super::disks::DiskType;
use super::vocabulary::{YesNo, vocabulary};
use super::xml::elements;

vocabulary! {
/// Who reads the disks.
BackupMode {
    /// QEMU writes them into files.
    Push = "push",
    /// A client reads them from QEMU, for as long as the backup lasts.
    Pull = "pull",
}
/// What a checkpoint does with a disk.
CheckpointKind {
    No = "no",
    /// A bitmap in its image records all writes from now on.
    Bitmap = "bitmap",
}
}

elements! {
/// `<domainbackup>`: a backup.
DomainBackup {
    attr "mode" "Mode" mode: BackupMode,
    /// The checkpoint since which changes are backed up; all is without one.
    leaf? "incremental" "Incremental" incremental: String,
    child "disks" "BackupDisks" disks: BackupDisks,
    child "server" "Server" server: Option<BackupServer>,
}
/// `<disks>`: all disks of the domain; those left out are not backed up.
BackupDisks {
    child "disk" "Disks" disks: Vec<BackupDisk>,
}
/// `<disk>`: whether and where a disk is backed up.
BackupDisk {
    /// The disk's target, such as `vda`.
    attr "name" "Name" name: String,
    attr "backup" "Backup" backup: YesNo,
    attr? "type" "Type" r#type: DiskType,
    /// Pull: the disk's name at the NBD server.
    attr? "exportname" "ExportName" export_name: String,
    /// Pull: the bitmap's name at the NBD server.
    attr? "exportbitmap" "ExportBitmap" export_bitmap: String,
    /// Push: where it is written.
    child "target" "Target" target: Option<BackupFile>,
    /// Pull: where QEMU keeps the old content of blocks that the guest overwrites meanwhile.
    child "scratch" "Scratch" scratch: Option<BackupFile>,
}
/// `<target>`, `<scratch>`: a qcow2 file that libvirt makes.
BackupFile {
    attr "file" "File" file: String,
}
/// `<server>`: QEMU's NBD server.
BackupServer {
    attr "transport" "Transport" transport: String,
    attr? "socket" "Socket" socket: String,
}
/// `<domaincheckpoint>`: a point in time from which backups can be incremental.
DomainCheckpoint {
    leaf "name" "Name" name: String,
    child "disks" "CheckpointDisks" disks: CheckpointDisks,
    /// Seconds since 1970. Only for a checkpoint that is redefined.
    leaf? "creationTime" "CreationTime" creation_time: Option<i64>,
}
/// `<disks>`: the disks of the checkpoint.
CheckpointDisks {
    child "disk" "Disks" disks: Vec<CheckpointDisk>,
}
/// `<disk>`: a disk of the checkpoint.
CheckpointDisk {
    /// The disk's target, such as `vda`.
    attr "name" "Name" name: String,
    attr "checkpoint" "Checkpoint" checkpoint: CheckpointKind,
}
}
