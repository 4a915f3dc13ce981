//! From a running domain's disks to the XML of a backup: full or incremental, push or pull (with
//! scratch files).

use api::backup::BackupVolumeInfo;
use domain::YesNo;
use domain::backup::{
    BackupDisk, BackupDisks, BackupFile, BackupServer, CheckpointDisk, CheckpointDisks,
    CheckpointKind, DomainBackup, DomainCheckpoint,
};
use domain::disks::{Disk, DiskType};

use super::request::{BackupId, RequestedMode, Start};

/// What libvirt is given, and what virt-handler then sees of it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupPlan {
    pub backup: DomainBackup,
    /// The checkpoint that is made with it.
    pub checkpoint: DomainCheckpoint,
    /// The volumes in it.
    pub volumes: Vec<BackupVolumeInfo>,
}

/// Why there is nothing to back up.
#[derive(Debug, thiserror::Error)]
pub enum BackupPlanError {
    /// No disk has an overlay.
    #[error(
        "no disk of the domain tracks its changed blocks: nothing can be backed up. Disks do from the next start on, or when they are plugged in"
    )]
    NoTrackedDisk,
}

impl BackupId {
    /// Name and time: what checkpoints and directories are called.
    #[must_use]
    pub fn dated_name(&self) -> String {
        format!("{}-{}", self.name, self.started.to_file_name())
    }
}

/// What to give libvirt so that the disks that have an overlay are backed up into (push), or with
/// the help of (pull), files in `dir`. A backup that is pulled is read from `socket`.
///
/// # Errors
/// No disk has an overlay.
pub fn backup_plan(
    disks: &[Disk],
    start: &Start,
    dir: &str,
    socket: &str,
) -> Result<BackupPlan, BackupPlanError> {
    let checkpoint_name = start.id.dated_name();
    let (mut backup_disks, mut checkpoint_disks) = (Vec::new(), Vec::new());
    let mut volumes = Vec::new();
    for disk in disks.iter().filter(|disk| !disk.target.device.is_empty()) {
        let target = &disk.target.device;
        let volume = disk.volume();
        let is_tracked = disk.source.data_store.is_some();
        let kind = if is_tracked {
            backup_disks.push(tracked(start, target, volume, dir, &checkpoint_name));
            volumes.push(BackupVolumeInfo {
                volume_name: volume.to_owned(),
                disk_target: target.clone(),
            });
            CheckpointKind::Bitmap
        } else {
            backup_disks.push(BackupDisk {
                name: target.clone(),
                backup: YesNo::No,
                ..BackupDisk::default()
            });
            CheckpointKind::No
        };
        checkpoint_disks.push(CheckpointDisk {
            name: target.clone(),
            checkpoint: kind,
        });
    }
    if volumes.is_empty() {
        return Err(BackupPlanError::NoTrackedDisk);
    }
    let server = BackupServer {
        transport: "unix".into(),
        socket: socket.to_owned(),
    };
    Ok(BackupPlan {
        backup: DomainBackup {
            mode: start.mode.to_libvirt(),
            incremental: start.incremental.clone().unwrap_or_default(),
            disks: BackupDisks {
                disks: backup_disks,
            },
            server: (start.mode == RequestedMode::Pull).then_some(server),
        },
        checkpoint: DomainCheckpoint {
            name: checkpoint_name,
            disks: CheckpointDisks {
                disks: checkpoint_disks,
            },
            creation_time: None,
        },
        volumes,
    })
}

/// A disk that is backed up.
// D-backup-2 (docs/differences.md).
fn tracked(start: &Start, target: &str, volume: &str, dir: &str, checkpoint: &str) -> BackupDisk {
    let file = BackupFile {
        file: format!("{dir}/{}-{volume}.qcow2", start.id.name),
    };
    let disk = BackupDisk {
        name: target.to_owned(),
        backup: YesNo::Yes,
        r#type: DiskType::File,
        ..BackupDisk::default()
    };
    match start.mode {
        RequestedMode::Push => BackupDisk {
            target: Some(file),
            ..disk
        },
        RequestedMode::Pull => BackupDisk {
            scratch: Some(file),
            export_name: volume.to_owned(),
            export_bitmap: checkpoint.to_owned(),
            ..disk
        },
    }
}
