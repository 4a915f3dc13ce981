//! `backup.json`, the content of a backup, written when it is complete; and the records of existing
//! backups.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, InFile};
use crate::json::text_at;
use crate::new_file::NewFile;
use api::backup::BackupVolumeInfo;
use os::command::{self, Limits};

/// The unit of `st_blocks`.
const BYTES_PER_BLOCK: u64 = 512;
const RECORD_FILE: &str = "backup.json";
/// Prefix of backups' directories.
const NAME_PREFIX: &str = "backup-";
/// For `qemu-img rebase`, which writes a header.
const REBASE_LIMITS: Limits = Limits {
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
    pub fn of(directory: &Path, report: &Value, parent: Option<&Self>) -> Result<Self, CtlError> {
        let volumes = serde_json::from_str(text_at(report, "/Volumes"));
        let volumes: Vec<BackupVolumeInfo> = volumes.map_err(|source| {
            text_error!("the launcher's list of the backup's volumes is not valid JSON")
                .caused_by(source)
        })?;
        let file = |volume: BackupVolumeInfo| {
            let file = format!("{}-{}.qcow2", text_at(report, "/Name"), volume.volume_name);
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
            checkpoint: text_at(report, "/CheckpointName").to_owned(),
            started: text_at(report, "/StartTimestamp").to_owned(),
            parent: parent.map(|parent| parent.checkpoint.clone()),
            quiesce_status: text_at(report, "/QuiesceStatus").to_owned(),
            message: text_at(report, "/BackupMsg").to_owned(),
            files: files?,
        })
    }

    /// Puts the images on top of the last ones, so that each is readable as a whole disk.
    ///
    /// # Errors
    /// `qemu-img` fails.
    pub fn chain_images(&self, directory: &Path, parent: Option<&Self>) -> Result<(), TextError> {
        let Some(parent) = parent else { return Ok(()) };
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
            command::run("qemu-img", arguments, &[], None, REBASE_LIMITS).map_err(|source| {
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

    /// A volume's file, if the backup has one.
    pub fn file_of(&self, volume: &str) -> Option<&RecordFile> {
        self.files.iter().find(|file| file.volume == volume)
    }
}

/// The complete backups of a VM in a directory, oldest first.
#[derive(Debug)]
pub struct Records {
    directory: PathBuf,
    records: Vec<Record>,
}

impl Records {
    /// Reads those in `dir`; an unreadable one is not a backup.
    pub fn read(dir: &Path, vm: &str) -> Self {
        let directory = dir.join(vm);
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let record = |entry: fs::DirEntry| -> Option<Record> {
            let json = fs::read(entry.path().join(RECORD_FILE)).ok()?;
            let record: Record = serde_json::from_slice(&json).ok()?;
            (*record.checkpoint == *entry.file_name()).then_some(record)
        };
        let mut records: Vec<_> = entries.filter_map(record).collect();
        records.sort_by(|one, other| one.started.cmp(&other.started));
        Self { directory, records }
    }

    /// The directories of incomplete backups, such as of a killed `backup`.
    pub fn incomplete(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let is_backup = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()
                .is_some_and(|name| name.starts_with(NAME_PREFIX))
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !entry.path().join(RECORD_FILE).exists()
        };
        let mut found: Vec<_> = entries.filter(is_backup).map(|it| it.path()).collect();
        found.sort_unstable();
        found
    }

    /// The directory of the backup of this name.
    pub fn directory(&self, dated_name: &str) -> PathBuf {
        self.directory.join(dated_name)
    }

    /// The backup on which an incremental one of these volumes builds: the one with this
    /// checkpoint, or the last one.
    ///
    /// # Errors
    /// There is none, or it lacks a volume.
    pub fn parent(&self, checkpoint: &str, volumes: &[String]) -> Result<&Record, TextError> {
        let directory = self.directory.display();
        let Some(last) = self.records.last() else {
            fail!(
                "{directory} has no complete backup of this VM to build on; make one without --incremental first"
            );
        };
        let found = match checkpoint {
            "" => Some(last),
            name => self.find(name),
        };
        let Some(parent) = found else {
            let known: Vec<_> = self.records.iter().map(|it| &*it.checkpoint).collect();
            let known = known.join(", ");
            fail!("{directory} has no backup {checkpoint:?} of this VM; it has {known}");
        };
        match volumes.iter().find(|it| parent.file_of(it).is_none()) {
            Some(volume) => fail!(
                "volume {volume:?} is not in the backup {}; make one without --incremental, which has all volumes",
                parent.checkpoint
            ),
            None => Ok(parent),
        }
    }

    /// The one with this checkpoint.
    pub fn find(&self, checkpoint: &str) -> Option<&Record> {
        self.records.iter().find(|it| it.checkpoint == checkpoint)
    }

    pub fn count(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A full backup of these volumes, made on that day.
    pub fn record(day: u32, volumes: &[&str]) -> Record {
        let file = |volume: &&str| RecordFile {
            volume: (*volume).to_owned(),
            target: "vda".into(),
            file: format!("backup-{volume}.qcow2"),
            bytes: 1,
        };
        Record {
            checkpoint: format!("backup-{day}"),
            started: format!("2026-01-{day:02}T00:00:00Z"),
            parent: None,
            quiesce_status: "Skipped".into(),
            message: String::new(),
            files: volumes.iter().map(file).collect(),
        }
    }

    #[test]
    fn an_incremental_backup_builds_on_the_last_one_or_the_one_that_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = ["data".to_owned()];
        let records = Records::read(dir.path(), "vm");
        let error = records.parent("", &volumes).unwrap_err().to_string();
        assert!(error.contains("without --incremental"), "{error}");
        for day in [2, 10, 1] {
            let record = record(day, &["data"]);
            let directory = dir.path().join("vm").join(&record.checkpoint);
            fs::create_dir_all(&directory).unwrap();
            record.store(&directory).unwrap();
        }
        // Incomplete, or renamed.
        fs::create_dir(dir.path().join("vm/backup-11")).unwrap();
        let moved = dir.path().join("vm/moved");
        fs::create_dir(&moved).unwrap();
        record(12, &["data"]).store(&moved).unwrap();
        let records = Records::read(dir.path(), "vm");
        assert_eq!(records.incomplete(), [dir.path().join("vm/backup-11")]);
        let parent = |name| records.parent(name, &volumes).unwrap().checkpoint.clone();
        assert_eq!(parent(""), "backup-10");
        assert_eq!(parent("backup-2"), "backup-2");
        let error = records.parent("backup-12", &volumes).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("it has backup-1, backup-2, backup-10"),
            "{error}"
        );
        let more = ["data".to_owned(), "new".to_owned()];
        let error = records.parent("", &more).unwrap_err().to_string();
        assert!(error.contains("\"new\""), "{error}");
    }
}
