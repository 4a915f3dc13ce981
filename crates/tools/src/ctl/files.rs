//! Reading files, with errors that name them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Standard input, where a file is expected.
const STDIN: &str = "-";

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

/// Reads a file as UTF-8 text; `-` is standard input.
///
/// # Errors
/// If it cannot be read.
pub fn read_text(file: &Path) -> Result<String, FileError> {
    if file != Path::new(STDIN) {
        return std::fs::read_to_string(file).map_err(FileError::on("read", file));
    }
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(FileError::on("read", display_name(file)))?;
    Ok(text)
}

/// What errors call a file: `-` is `standard input`.
#[must_use]
pub fn display_name(file: &Path) -> String {
    if file == Path::new(STDIN) {
        "standard input".into()
    } else {
        file.display().to_string()
    }
}
