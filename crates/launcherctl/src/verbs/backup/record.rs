//! `backup.json`, the content of a backup, written when it is complete.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{CtlError, TextError, text_error};
use crate::files::{FileError, InFile};
use crate::new_file::NewFile;
use api::backup::BackupVolumeInfo;
use domain::metadata::BackupMetadata;
use os::command::{self, Limits};

/// The unit of `st_blocks`.
const BYTES_PER_BLOCK: u64 = 512;
/// Below a backup's directory.
const RECORD_FILE: &str = "backup.json";
/// For `qemu-img`, which reads and writes headers.
pub const QEMU_IMG_LIMITS: Limits = Limits {
    memory: 0,
    cpu: 60,
    wall: Duration::from_secs(120),
};

/// A complete backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its checkpoint, on which an incremental backup can build. The directory has the same name.
    pub checkpoint: String,
    /// Start time, RFC 3339.
    pub started: String,
    /// The backup below it, if it is incremental.
    pub parent: Option<String>,
    /// `Succeeded` if the guest's file systems were frozen, `AlreadyFrozen` if they were frozen
    /// before, else `Failed` or `Skipped`.
    pub quiesce_status: String,
    /// The launcher's remark.
    pub message: String,
    /// A file for each volume.
    pub files: Vec<RecordFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordFile {
    /// The volume's name in the VMI.
    pub volume: String,
    /// The disk's name in the domain, such as `vda`.
    pub target: String,
    /// Its name in the backup's directory.
    pub file: String,
    /// Its size on the disk, without its holes.
    pub bytes: u64,
}

impl Record {
    /// From the launcher's report and the existing files.
    ///
    /// # Errors
    /// A file is missing.
    pub fn of(
        directory: &Path,
        report: BackupMetadata,
        parent: Option<&Self>,
    ) -> Result<Self, CtlError> {
        let volumes = serde_json::from_str(&report.volumes);
        let volumes: Vec<BackupVolumeInfo> = volumes.map_err(|source| {
            text_error!("the launcher's list of the backup's volumes is not valid JSON")
                .caused_by(source)
        })?;
        let file = |volume: BackupVolumeInfo| {
            let file = format!("{}-{}.qcow2", report.name, volume.volume_name);
            let path = directory.join(&file);
            let metadata = fs::metadata(&path).map_err(FileError::on("find", &path))?;
            Ok(RecordFile {
                volume: volume.volume_name,
                target: volume.disk_target,
                file,
                bytes: metadata.blocks().saturating_mul(BYTES_PER_BLOCK),
            })
        };
        let files: Result<_, FileError> = volumes.into_iter().map(file).collect();
        Ok(Self {
            checkpoint: report.checkpoint_name,
            started: report
                .start_timestamp
                .map_or_else(String::new, |it| it.0.to_string()),
            parent: parent.map(|parent| parent.checkpoint.clone()),
            quiesce_status: report.quiesce_status,
            message: report.backup_msg,
            files: files?,
        })
    }

    /// Puts the images on top of the last ones, so that each is readable as a whole disk.
    ///
    /// # Errors
    /// `qemu-img` fails.
    pub fn chain_images(&self, directory: &Path, parent: &Self) -> Result<(), TextError> {
        for file in &self.files {
            let Some(below) = parent.file_of(&file.volume) else {
                continue;
            };
            // A relative path: the directories may be moved together.
            let below = format!("../{}/{}", parent.checkpoint, below.file);
            let image = directory.join(&file.file);
            let image = image.to_string_lossy();
            let arguments = [
                "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", &below, &image,
            ];
            command::run("qemu-img", arguments, &[], None, QEMU_IMG_LIMITS).map_err(|source| {
                text_error!("the incremental backup cannot be put on top of the last one")
                    .caused_by(source)
            })?;
        }
        Ok(())
    }

    /// Writes the record, which marks the backup as complete.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, directory: &Path) -> Result<(), CtlError> {
        let path = directory.join(RECORD_FILE);
        let json = serde_json::to_vec_pretty(self).map_err(|error| InFile::new(&path, error))?;
        let mut file = NewFile::create(&path)?;
        file.write(&json)?;
        Ok(file.complete()?)
    }

    /// The record of the backup in this directory; `None` if that has another name, or the record
    /// is missing or unreadable.
    pub fn load(directory: &Path) -> Option<Self> {
        let json = fs::read(directory.join(RECORD_FILE)).ok()?;
        let record: Self = serde_json::from_slice(&json).ok()?;
        (*record.checkpoint == *directory.file_name()?).then_some(record)
    }

    /// A volume's file, if the backup has one.
    pub fn file_of(&self, volume: &str) -> Option<&RecordFile> {
        self.files.iter().find(|file| file.volume == volume)
    }
}
