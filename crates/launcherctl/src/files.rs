//! Reading files, with errors that name them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Standard input, where a file is expected.
pub const STDIN: &str = "-";
/// What errors call it.
pub const STDIN_NAME: &str = "standard input";

/// A file could not be read, written, found, ….
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}", path = path.display())]
pub struct FileError {
    /// What was tried, e.g. `read`.
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

impl FileError {
    /// For `map_err` on file operations.
    pub fn on(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self {
            action,
            path,
            source,
        }
    }
}

/// Something is wrong with what a file says.
#[derive(Debug, thiserror::Error)]
#[error("{file}")]
pub struct InFile<E: std::error::Error + 'static> {
    /// The file, or `standard input`.
    pub file: String,
    /// What is wrong.
    pub source: E,
}

impl<E: std::error::Error> InFile<E> {
    /// `-` is standard input.
    pub fn new(file: &Path, source: E) -> Self {
        let file = display_name(file);
        Self { file, source }
    }
}

/// Makes a file that only this user may read, in the place of one that is there.
///
/// # Errors
/// If it cannot be made.
pub fn create_private(file: &Path) -> io::Result<File> {
    let _ = std::fs::remove_file(file);
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(file)
}

/// Reads a file as UTF-8 text; `-` is standard input.
///
/// # Errors
/// If it cannot be read.
pub fn read_text(file: &Path) -> Result<String, FileError> {
    let text = if file == Path::new(STDIN) {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    text.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::new(error.kind(), "it is not a text file"),
        _ => error,
    })
    .map_err(FileError::on("read", display_name(file)))
}

/// The last bytes of a file, at most `limit`.
///
/// # Errors
/// If it cannot be read.
pub fn read_tail(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What errors call a file: `-` is `standard input`.
#[must_use]
pub fn display_name(file: &Path) -> String {
    if file == Path::new(STDIN) {
        STDIN_NAME.into()
    } else {
        file.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_image_is_not_read_as_text() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("guest.img");
        std::fs::write(&image, b"QFI\xfb\0\0").unwrap();
        let error = read_text(&image).unwrap_err();
        assert_eq!(error.source.to_string(), "it is not a text file");
    }
}
