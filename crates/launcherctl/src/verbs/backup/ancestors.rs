//! Checks that an incremental backup's ancestors exist: without one of them it cannot be restored.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::record::{Record, Records};
use crate::error::{TextError, text_error};

/// The beginning of a qcow2 file.
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

/// Checks the images of `volumes` in `parent`, and in all backups that it needs.
///
/// # Errors
/// For the first that is missing or not an image.
pub fn check(records: &Records, parent: &Record, volumes: &[String]) -> Result<(), TextError> {
    let broken = |path: PathBuf, problem: String| {
        text_error!(
            "the incremental backup cannot build on {}: {} {problem}; put it back, or make a full backup, without --incremental",
            parent.checkpoint,
            path.display()
        )
    };
    let mut record = parent;
    // Each ancestor is older than its child, so a chain has at most all of them.
    for _ in 0..records.count() {
        let directory = records.directory(&record.checkpoint);
        for file in volumes.iter().filter_map(|volume| record.file_of(volume)) {
            let image = directory.join(&file.file);
            if let Some(problem) = problem_of(&image) {
                return Err(broken(image, problem));
            }
        }
        let Some(below) = &record.parent else {
            return Ok(());
        };
        record = records.find(below).ok_or_else(|| {
            let directory = records.directory(below);
            let problem = if directory.is_dir() {
                "has no backup.json"
            } else {
                "is missing"
            };
            broken(directory, problem.to_owned())
        })?;
    }
    let directory = records.directory(&record.checkpoint);
    Err(broken(directory, "needs itself".to_owned()))
}

/// An image's problem; `None` if it begins like a qcow2 file.
fn problem_of(image: &Path) -> Option<String> {
    let mut start = [0; QCOW2_MAGIC.len()];
    let read = File::open(image).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == QCOW2_MAGIC => None,
        Ok(()) => Some("is not a qcow2 image".to_owned()),
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
    use std::fs;

    use super::super::record::tests::record;
    use super::*;

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
        check(&records, parent, &volumes).map_err(|error| error.to_string())
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
