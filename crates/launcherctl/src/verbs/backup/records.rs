//! The complete backups of a VM, and whether an incremental one can build on them: without one of
//! its ancestors it cannot be restored.

use std::fs;
use std::path::{Path, PathBuf};

use super::record::{QEMU_IMG_LIMITS, Record};
use crate::error::{TextError, fail, text_error};
use os::command;

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
        let mut records: Vec<Record> = entries
            .filter_map(|entry| Record::load(&entry.path()))
            .collect();
        records.sort_by(|one, other| one.started.cmp(&other.started));
        Self { directory, records }
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

    /// Checks the images of `volumes` in `parent`, with all below them.
    ///
    /// # Errors
    /// For the first that is missing or not an image.
    pub fn check_chain(&self, parent: &Record, volumes: &[String]) -> Result<(), TextError> {
        let directory = self.directory(&parent.checkpoint);
        for file in volumes.iter().filter_map(|volume| parent.file_of(volume)) {
            let image = directory.join(&file.file);
            let arguments = ["info", "--backing-chain", "-f", "qcow2"].map(Path::new);
            let arguments = arguments.into_iter().chain([&*image]);
            command::run("qemu-img", arguments, &[], None, QEMU_IMG_LIMITS).map_err(|source| {
                text_error!(
                    "the incremental backup cannot build on {}; put back what is missing, or make a full backup, without --incremental",
                    parent.checkpoint
                )
                .caused_by(source)
            })?;
        }
        Ok(())
    }

    /// The one with this checkpoint.
    fn find(&self, checkpoint: &str) -> Option<&Record> {
        self.records.iter().find(|it| it.checkpoint == checkpoint)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::record::RecordFile;
    use super::*;

    /// A full backup of these volumes, made on that day.
    fn record(day: u32, volumes: &[&str]) -> Record {
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
