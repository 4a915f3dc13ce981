//! Allows one launcher per root: two would write the same files and drive the same domain.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use os::small_file::{self, Links};

/// Why this launcher may not use its root.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another launcher uses the root.
    #[error(
        "another virt-launcher{} holds {}: stop it, or use another --root",
        pid.as_ref().map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        path.display()
    )]
    Held {
        path: PathBuf,
        /// The other launcher's process, if known.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}: remove it, or use another --root", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The lock, held until this value is dropped or the process ends in any way: flock(2).
#[derive(Debug)]
pub struct RootLock {
    _file: File,
}

impl RootLock {
    /// Locks the file at `path`, which it makes if missing.
    ///
    /// # Errors
    /// Another launcher holds the lock, or the file cannot be opened.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let fail = |source| LockError::Io {
            path: path.into(),
            source,
        };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = small_file::open(path, &mut options, Links::Refuse).map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held {
                    path: path.into(),
                    pid: read_pid(&mut file),
                });
            }
            Err(error) => return Err(fail(error.into())),
        }
        // For another launcher's error message.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(fail)?;
        Ok(Self { _file: file })
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn a_second_launcher_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher.lock");
        let first = RootLock::acquire(&path).unwrap();
        let error = RootLock::acquire(&path).unwrap_err().to_string();
        let expected = format!("another virt-launcher (pid {}) holds ", std::process::id());
        assert!(error.starts_with(&expected), "{error}");
        drop(first);
        RootLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_lock_file_that_cannot_be_made_is_named() {
        let error = RootLock::acquire(Path::new("/nonexistent/lock")).unwrap_err();
        assert_eq!(
            os::logging::chain(&error),
            "cannot lock /nonexistent/lock: remove it, or use another --root: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn what_is_in_the_lock_files_place_is_neither_waited_for_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("lock"), dir.path().join("other"));
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(matches!(
            RootLock::acquire(&path),
            Err(LockError::Io { .. })
        ));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "theirs");
        std::fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        let error = os::logging::chain(&RootLock::acquire(&path).unwrap_err());
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }
}
