//! Files that are complete or not there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::files::FileError;

/// A file written under another name beside its own. It gets its own name when complete, and is
/// removed otherwise.
#[derive(Debug)]
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Starts a file that only its owner may read. An existing file of this name stays until the
    /// new one is complete.
    ///
    /// # Errors
    /// It cannot be made, or the name belongs to something else, such as a directory or /dev/null.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        // Replaces a link's target, not the link.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        if std::fs::metadata(&path).is_ok_and(|it| !it.is_file()) {
            let reason = "it is there already, and is not a regular file";
            return Err(FileError::on("replace", path)(io::Error::other(reason)));
        }
        let made = NamedTempFile::with_suffix_in(".partial", path.parent().unwrap_or(&path));
        let file = made.map_err(FileError::on("make", &path))?;
        Ok(Self { file, path })
    }

    /// Appends to it.
    ///
    /// # Errors
    /// It cannot be written, such as on a full file system.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.file.write_all(bytes);
        written.map_err(FileError::on("write", &self.path))
    }

    /// Gives it its name once it is stored.
    ///
    /// # Errors
    /// It cannot be stored.
    pub fn complete(self) -> Result<(), FileError> {
        let stored = self.file.as_file().sync_all();
        let named = stored.and_then(|()| Ok(self.file.persist(&self.path).map(drop)?));
        named.map_err(FileError::on("write", self.path))
    }
}

/// Writes a file as a whole, or not at all; into a pipe or a device as it is.
///
/// # Errors
/// It cannot be made, written or stored.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    if std::fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return std::fs::write(path, bytes).map_err(FileError::on("write", path));
    }
    let mut file = NewFile::create(path)?;
    file.write(bytes)?;
    file.complete()
}

/// Refuses to overwrite a regular file. `-` is standard output; others, such as a pipe, may be
/// written to.
///
/// # Errors
/// It is a regular file, and `force` is not given.
pub fn check_overwrite(path: &Path, force: bool) -> Result<(), FileError> {
    if !force && path != Path::new("-") && std::fs::metadata(path).is_ok_and(|it| it.is_file()) {
        let reason = "it is there already; choose another name, or overwrite it with --force";
        return Err(FileError::on("write", path)(io::Error::other(reason)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_whole_file_is_written_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        write_whole(&file, b"b").unwrap();
        write_whole(Path::new("/dev/null"), b"b").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"b");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // The device is full.
        write_whole(Path::new("/dev/full"), b"b").unwrap_err();
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for other in [dir.path(), Path::new("/dev/null")] {
            let error = NewFile::create(other).unwrap_err();
            assert_eq!(error.action, "replace", "{error}");
        }
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut new = NewFile::create(&link).unwrap();
        new.write(b"new").unwrap();
        new.complete().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let missing = NewFile::create(Path::new("/nonexistent/dump")).unwrap_err();
        assert_eq!(missing.path, Path::new("/nonexistent/dump"));
    }

    #[test]
    fn only_with_force_a_file_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert!(check_overwrite(&path, false).is_ok());
        std::fs::write(&path, "old").unwrap();
        let error = check_overwrite(&path, false).unwrap_err();
        assert_eq!((error.action, &*error.path), ("write", &*path));
        assert!(check_overwrite(&path, true).is_ok());
        assert!(check_overwrite(Path::new("/dev/null"), false).is_ok());
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "old").unwrap();
        let mut new = NewFile::create(&path).unwrap();
        new.write(b"ne").unwrap();
        drop(new);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let mut new = NewFile::create(&path).unwrap();
        new.write(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        new.complete().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
