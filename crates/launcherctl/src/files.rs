//! Reads files, with errors that name them.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

pub use os::file_error::FileError;
use os::small_file;

/// Means standard input in place of a file.
pub const STDIN: &str = "-";
/// Limit of a file that this program reads whole: twice what a launcher takes for a VMI.
pub const MAX_FILE_BYTES: u64 = 8 << 20;

/// `sizeof(sun_path)` without its final 0.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Something is wrong with a file's content.
#[derive(Debug, thiserror::Error)]
#[error("{file}")]
pub struct InFile<E: std::error::Error + 'static> {
    pub file: String,
    pub source: E,
}

impl<E: std::error::Error> InFile<E> {
    /// `-` means standard input.
    pub fn new(file: &Path, source: E) -> Self {
        let file = display_name(file);
        Self { file, source }
    }
}

/// Makes a file that only this user may read, replacing an existing one.
///
/// # Errors
/// It cannot be made.
pub fn create_private(file: &Path) -> Result<File, FileError> {
    let _ = std::fs::remove_file(file);
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    options.open(file).map_err(FileError::on("make", file))
}

/// TMPDIR, or /tmp if TMPDIR's path leaves a socket below it fewer bytes than these.
pub fn short_temporary(bytes: usize) -> PathBuf {
    let directory = std::env::temp_dir();
    let length = directory.as_os_str().len().saturating_add(bytes);
    match length <= MAX_SOCKET_PATH_BYTES {
        true => directory,
        false => PathBuf::from("/tmp"),
    }
}

/// Listens on a Unix socket, replacing an existing file.
///
/// # Errors
/// It cannot be made.
pub fn listen(socket: &Path) -> Result<UnixListener, FileError> {
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).map_err(FileError::on("listen on", socket))
}

/// Reads a file as UTF-8 text; `-` means standard input.
///
/// # Errors
/// It cannot be read, is no text, or has more than [`MAX_FILE_BYTES`].
pub fn read_text(file: &Path) -> Result<String, FileError> {
    let content = if file == Path::new(STDIN) {
        small_file::read_all(io::stdin(), MAX_FILE_BYTES)
    } else {
        // Also of a pipe, as a shell's <(command) is one.
        File::open(file).and_then(|file| small_file::read_all(file, MAX_FILE_BYTES))
    };
    content
        .and_then(|content| {
            let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text file");
            String::from_utf8(content).map_err(not_text)
        })
        .map_err(FileError::on("read", display_name(file)))
}

/// A file's name in errors: `standard input` for `-`.
pub fn display_name(file: &Path) -> String {
    if file == Path::new(STDIN) {
        "standard input".into()
    } else {
        file.display().to_string()
    }
}

/// The path for people. `--root` may be relative, which does not help a reader in another
/// directory, or too long for sockets: then a link names the VM, which goes with it. The link's
/// target may have been removed.
pub fn absolute(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| path.read_link())
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_not_read_as_text() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("guest.img");
        std::fs::write(&image, b"QFI\xfb\0\0").unwrap();
        let error = read_text(&image).unwrap_err();
        assert_eq!(error.source.to_string(), "it is not a text file");
    }

    #[test]
    fn a_file_without_end_is_read_up_to_the_limit() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.source.to_string(), "it has more than 8388608 bytes");
    }
}
