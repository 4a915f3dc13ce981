//! Follows a growing log file.

use std::path::Path;

use crate::files::FileError;
use os::inotify::DirWatch;
use os::log_file::{LogFile, Progress};

/// Reads what is new in a file whose directory exists.
#[derive(Debug)]
pub struct LogFollower {
    log: LogFile,
    watch: DirWatch,
}

impl LogFollower {
    /// Starts at the beginning of the last rotated file, else of the file, which need not exist
    /// yet.
    ///
    /// # Errors
    /// Its directory does not exist.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let watch = DirWatch::new();
        let directory = path.parent().unwrap_or(path);
        let added = watch.add_with_writes(directory);
        added.map_err(FileError::on("watch", directory))?;
        Ok(Self {
            log: LogFile::with_rotated(path),
            watch,
        })
    }

    /// The new whole lines; empty if there are none, or the file is unreadable for now.
    pub fn read_new(&mut self) -> String {
        let mut text = Vec::new();
        let mut each = |lines: &[u8]| {
            text.extend_from_slice(lines);
            Ok::<(), std::convert::Infallible>(())
        };
        while matches!(self.log.read(&mut each), Ok(Progress::More)) {}
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits until there may be something new.
    pub async fn changed(&self) {
        self.watch.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn lines_are_read_once_they_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut follower = LogFollower::open(&path).unwrap();
        assert_eq!(follower.read_new(), "");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        follower.changed().await;
        assert_eq!(follower.read_new(), "one\n");
        file.write_all(b"o\n").unwrap();
        while follower.read_new().is_empty() {
            follower.changed().await;
        }
    }
}
