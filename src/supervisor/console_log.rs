//! Limits the serial console's log (`virt-serial0-log`) where QEMU writes it itself: without
//! virtlogd nothing rotates it.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::time::sleep;

use os::inotify::{DirWatch, appears};

/// A longer log is emptied. The limit is virtlogd's (`max_size`).
const MAX_BYTES: u64 = 2 << 20;
/// Interval of checks while the log grows: an emulated serial port carries less than 1 MiB in that
/// time.
const INTERVAL: Duration = Duration::from_millis(100);

/// Keeps the log at `path` below [`MAX_BYTES`] and never returns. QEMU appends, so its next write
/// to an emptied log starts at the beginning.
pub async fn limit(path: PathBuf) {
    let directory = path.parent().unwrap_or(Path::new("/"));
    loop {
        appears(directory).await;
        let watch = DirWatch::new();
        if watch.add_with_writes(directory).is_err() {
            // The file was removed meanwhile.
            continue;
        }
        let mut has_failed = false;
        while directory.is_dir() {
            match empty_if_long(&path) {
                Err(error) if !std::mem::replace(&mut has_failed, true) => {
                    tracing::warn!(reason = %error, "The console's log {} has no limit", path.display());
                }
                _ => {}
            }
            watch.changed().await;
            sleep(INTERVAL).await;
        }
    }
}

fn empty_if_long(path: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let log = match opened {
        // The guest has no serial console, or not yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if log.metadata()?.len() > MAX_BYTES {
        log.set_len(0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn a_log_that_is_appended_to_stays_below_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uid/virt-serial0-log");
        let limiting = tokio::spawn(limit(path.clone()));
        tokio::task::yield_now().await;
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let mut qemu = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        let length = || path.metadata().unwrap().len();
        for _ in 0..3 {
            qemu.write_all(&vec![b'x'; 1 << 20]).unwrap();
            tokio::time::sleep(INTERVAL * 2).await;
            assert!(length() <= MAX_BYTES, "a log that is not too long stays");
            assert!(length() > 0);
            qemu.write_all(&vec![b'x'; 2 << 20]).unwrap();
            while length() > 0 {
                tokio::task::yield_now().await;
            }
        }
        qemu.write_all(b"login: ").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"login: ");
        limiting.abort();
    }

    #[test]
    fn another_file_in_the_logs_place_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("log"), dir.path().join("other"));
        std::fs::write(&other, vec![b'x'; 3 << 20]).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(empty_if_long(&path).is_err());
        assert_eq!(other.metadata().unwrap().len(), 3 << 20);
        assert!(empty_if_long(&dir.path().join("none")).is_ok());
    }
}
