//! Files that others may write, such as those in which a process leaves something for the next one:
//! replaced as a whole, read up to a limit, and never waited for.

use std::fs::{File, OpenOptions, remove_file, rename};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Replaces the file's content. The new file is made beside the old one, then renamed: readers
/// never see a part.
///
/// # Errors
/// If it cannot be written; the old content then stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    let written = create(&new)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| rename(&new, path));
    if written.is_err() {
        // Best effort: the next attempt removes it as well.
        drop(remove_file(&new));
    }
    written
}

/// A file that was not there.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Removes it, if it is there.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// What a symbolic link at a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The file that it names: for files that belong to the machine or the image.
    Follow,
    /// An error: for files of the launcher's own.
    Refuse,
}

/// Opens a regular file with `options`, without waiting for the other side of a FIFO in its place.
///
/// # Errors
/// If it is not there, or is something else.
pub fn open(path: &Path, options: &mut OpenOptions, links: Links) -> io::Result<File> {
    let flags = match links {
        Links::Follow => OFlags::NONBLOCK,
        Links::Refuse => OFlags::NONBLOCK | OFlags::NOFOLLOW,
    };
    let file = options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        let error = "it is not a regular file";
        return Err(io::Error::new(ErrorKind::InvalidInput, error));
    }
    Ok(file)
}

/// The content of a regular file; a symbolic link is refused.
///
/// # Errors
/// If it is not there, is something else, or has more than `max` bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_with(path, max, Links::Refuse)
}

/// The text of a regular file, which a symbolic link may name; bytes that are not UTF-8 are
/// replaced.
///
/// # Errors
/// See [`read`].
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let content = read_with(path, max, Links::Follow)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The content of a regular file.
///
/// # Errors
/// See [`read`].
pub fn read_with(path: &Path, max: u64, links: Links) -> io::Result<Vec<u8>> {
    read_all(open(path, OpenOptions::new().read(true), links)?, max)
}

/// All that `source` has until it ends.
///
/// # Errors
/// If it cannot be read, or has more than `max` bytes.
pub fn read_all(source: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more shows that there is more.
    let length = source
        .take(max.saturating_add(1))
        .read_to_end(&mut content)?;
    if u64::try_from(length).is_ok_and(|length| length > max) {
        let error = format!("it has more than {max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, error));
    }
    Ok(content)
}

/// The end of a regular file, such as a log, at most `max` bytes; a symbolic link is refused.
///
/// # Errors
/// If it is not there, or is something else.
pub fn tail(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path, OpenOptions::new().read(true), Links::Refuse)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max)))?;
    let mut content = Vec::new();
    file.take(max).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

    #[test]
    fn a_file_is_replaced_as_a_whole_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        assert_eq!(read(&path, 9).unwrap_err().kind(), ErrorKind::NotFound);
        for content in [&b"first"[..], b"second", b""] {
            replace(&path, content).unwrap();
            assert_eq!(read(&path, 9).unwrap(), content);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_is_neither_read_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("note"), dir.path().join("other"));
        std::fs::write(&other, "theirs").unwrap();
        symlink(&other, &path).unwrap();
        symlink(&other, dir.path().join("note.new")).unwrap();
        assert!(read(&path, 9).is_err() && tail(&path, 9).is_err());
        assert_eq!(read_text(&path, 9).unwrap(), "theirs");
        replace(&path, b"ours").unwrap();
        assert_eq!(read(&path, 9).unwrap(), b"ours");
        assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
    }

    #[test]
    fn what_is_too_large_or_not_a_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        replace(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let larger = read(&path, 4).unwrap_err();
        assert_eq!(larger.kind(), ErrorKind::FileTooLarge);
        assert_eq!(larger.to_string(), "it has more than 4 bytes");
        assert!(read_all(io::repeat(0), 4).is_err());
        assert_eq!(tail(&path, 2).unwrap(), b"45");
        assert_eq!(tail(&path, 9).unwrap(), b"12345");
        let directory = read(dir.path(), 9).unwrap_err();
        assert_eq!(directory.kind(), ErrorKind::InvalidInput);
        mkfifoat(CWD, dir.path().join("fifo"), Mode::from_raw_mode(0o600)).unwrap();
        let fifo = read(&dir.path().join("fifo"), 9).unwrap_err();
        assert_eq!(fifo.to_string(), "it is not a regular file");
        assert!(tail(&dir.path().join("fifo"), 9).is_err());
        let missing = replace(&dir.path().join("no/note"), b"x").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
