//! The complete backups of a VM, and whether an incremental one can build on them: without one of
//! its ancestors it cannot be restored.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::record::{RECORD_FILE, Record};
use crate::error::{TextError, fail, text_error};

/// Prefix of backups' directories.
const NAME_PREFIX: &str = "backup-";
/// The beginning of a qcow2 file.
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

/// The complete backups of a VM in a directory, oldest first.
#[derive(Debug)]
pub struct Records {
    directory: PathBuf,
    records: Vec<Record>,
    /// The directories of incomplete backups, such as of a killed `backup`.
    pub incomplete: Vec<PathBuf>,
}

impl Records {
    /// Reads those in `dir`; an unreadable one is not a backup.
    pub fn read(dir: &Path, vm: &str) -> Self {
        let directory = dir.join(vm);
        let (mut records, mut incomplete) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if let Some(record) = Record::load(&path) {
                records.push(record);
            } else if entry.file_name().to_string_lossy().starts_with(NAME_PREFIX)
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !path.join(RECORD_FILE).exists()
            {
                incomplete.push(path);
            }
        }
        records.sort_by(|one, other| one.started.cmp(&other.started));
        incomplete.sort_unstable();
        Self {
            directory,
            records,
            incomplete,
        }
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

    /// Checks the images of `volumes` in `parent`, and in all backups that it needs.
    ///
    /// # Errors
    /// For the first that is missing or not an image.
    pub fn check_chain(&self, parent: &Record, volumes: &[String]) -> Result<(), TextError> {
        let broken = |path: PathBuf, problem: &str| {
            text_error!(
                "the incremental backup cannot build on {}: {} {problem}; put it back, or make a full backup, without --incremental",
                parent.checkpoint,
                path.display()
            )
        };
        let mut record = parent;
        // Each ancestor is older than its child, so a chain has at most all of them.
        for _ in &self.records {
            let directory = self.directory(&record.checkpoint);
            for file in volumes.iter().filter_map(|volume| record.file_of(volume)) {
                let image = directory.join(&file.file);
                if let Some(problem) = problem_of(&image) {
                    return Err(broken(image, &problem));
                }
            }
            let Some(below) = &record.parent else {
                return Ok(());
            };
            record = self.find(below).ok_or_else(|| {
                let directory = self.directory(below);
                let problem = if directory.is_dir() {
                    "has no backup.json"
                } else {
                    "is missing"
                };
                broken(directory, problem)
            })?;
        }
        Err(broken(self.directory(&record.checkpoint), "needs itself"))
    }

    /// The one with this checkpoint.
    fn find(&self, checkpoint: &str) -> Option<&Record> {
        self.records.iter().find(|it| it.checkpoint == checkpoint)
    }
}

/// An image's problem; `None` if it begins like a qcow2 file.
fn problem_of(image: &Path) -> Option<String> {
    let mut start = [0; QCOW2_MAGIC.len()];
    match File::open(image).and_then(|mut file| file.read_exact(&mut start)) {
        Ok(()) => (start != QCOW2_MAGIC).then(|| "is not a qcow2 image".to_owned()),
        Err(error) => Some(match error.kind() {
            ErrorKind::NotFound => "is missing".to_owned(),
            ErrorKind::UnexpectedEof => "is empty".to_owned(),
            _ => format!("cannot be read: {error}"),
        }),
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
        assert_eq!(records.incomplete, [dir.path().join("vm/backup-11")]);
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

    /// A full backup and two on top of it, damaged and checked as by the next backup.
    fn checked(damage: impl FnOnce(&Path)) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let vm = dir.path().join("vm");
        for day in 1..=3 {
            let mut record = record(day, &["data"]);
            record.parent = (day > 1).then(|| format!("backup-{}", day - 1));
            let directory = vm.join(&record.checkpoint);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("backup-data.qcow2"), b"QFI\xfb\0\0\0\x03").unwrap();
            record.store(&directory).unwrap();
        }
        damage(&vm);
        let records = Records::read(dir.path(), "vm");
        let volumes = ["data".to_owned()];
        let parent = records.parent("", &volumes).unwrap();
        let checked = records.check_chain(parent, &volumes);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_chain_is_whole_while_each_backup_of_it_is_there() {
        assert_eq!(checked(|_| {}), Ok(()));
        let broken = |damage: fn(&Path), expected: &str| {
            let error = checked(damage).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("without --incremental"), "{error}");
        };
        let gone = |vm: &Path| fs::remove_dir_all(vm.join("backup-1")).unwrap();
        broken(gone, "vm/backup-1 is missing");
        let moved = |vm: &Path| fs::rename(vm.join("backup-2"), vm.join("mine")).unwrap();
        broken(moved, "vm/backup-2 is missing");
        let recordless = |vm: &Path| fs::remove_file(vm.join("backup-1/backup.json")).unwrap();
        broken(recordless, "vm/backup-1 has no backup.json");
        let empty = |vm: &Path| fs::write(vm.join("backup-1/backup-data.qcow2"), "").unwrap();
        broken(empty, "backup-1/backup-data.qcow2 is empty");
        let other =
            |vm: &Path| fs::write(vm.join("backup-3/backup-data.qcow2"), "raw disk").unwrap();
        broken(other, "backup-3/backup-data.qcow2 is not a qcow2 image");
        let no_file = |vm: &Path| fs::remove_file(vm.join("backup-3/backup-data.qcow2")).unwrap();
        broken(no_file, "backup-3/backup-data.qcow2 is missing");
    }

    #[test]
    fn a_record_that_names_itself_is_not_followed_for_ever() {
        let cyclic = |vm: &Path| {
            let mut record = record(1, &["data"]);
            record.parent = Some("backup-3".into());
            record.store(&vm.join("backup-1")).unwrap();
        };
        assert!(checked(cyclic).unwrap_err().contains("needs itself"));
    }
}
