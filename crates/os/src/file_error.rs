//! What fails on a file, for all modules that say it in the same words.

use std::io;
use std::path::PathBuf;

/// The system's reason is the source: print the chain.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// Such as `read` or `make the directory`.
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl FileError {
    /// Turns the system's error into this one: `map_err(FileError::on("read", path))`.
    pub fn on<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |error| Self {
            action,
            path,
            source: error.into(),
        }
    }
}
