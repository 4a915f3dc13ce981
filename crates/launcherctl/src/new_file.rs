//! Files that a user names for a verb's result.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::files::FileError;

/// Writes a file as a whole, or not at all; into a pipe or a device as it is.
///
/// # Errors
/// It cannot be made, written or stored.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    // Replaces a link's target, not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let replace = || {
        let directory = target.parent().filter(|it| !it.as_os_str().is_empty());
        let mut file = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        file.write_all(bytes)?;
        Ok(file.persist(&target).map(drop)?)
    };
    let written = match target.metadata() {
        Ok(it) if !it.is_file() => std::fs::write(path, bytes),
        _ => replace(),
    };
    written.map_err(FileError::on("write", path))
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
}
