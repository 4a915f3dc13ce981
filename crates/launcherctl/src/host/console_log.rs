//! QEMU's own log of the guest's serial console, for the output before a client has connected.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How much of the end of QEMU's log is read.
const MAX_QEMU_LOG_BYTES: u64 = 1 << 20;
/// Number of bytes of QEMU's log that are compared with its stream. The socket holds more writes of
/// one byte than that, so QEMU's log has none of these twice.
const MAX_COMPARED_BYTES: usize = 200;

/// QEMU's log of the console before a client connects.
#[derive(Debug)]
pub struct QemuLog {
    path: PathBuf,
    length: u64,
}

impl QemuLog {
    /// Reads the log at `path`. Call it before the client connects.
    pub fn read(path: PathBuf) -> (Self, Vec<u8>) {
        let length = path.metadata().map_or(0, |it| it.len());
        let from = length.saturating_sub(MAX_QEMU_LOG_BYTES);
        let mut before = read_from(&path, from).unwrap_or_default();
        before.truncate(usize::try_from(length.saturating_sub(from)).unwrap_or(usize::MAX));
        (Self { path, length }, before)
    }

    /// What was logged since then.
    pub fn read_new(&self) -> Vec<u8> {
        read_from(&self.path, self.length).unwrap_or_default()
    }
}

fn read_from(path: &Path, position: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::new();
    file.take(MAX_QEMU_LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where the stream of QEMU's socket begins in `logged`, QEMU's log around the time of the client's
/// connection. `stream` has everything logged since then.
pub fn start_of_stream(logged: &[u8], stream: &[u8]) -> usize {
    let is_start = |position: &usize| {
        let rest = logged.get(*position..).unwrap_or_default();
        stream.starts_with(rest.get(..MAX_COMPARED_BYTES).unwrap_or(rest))
    };
    (0..logged.len()).find(is_start).unwrap_or(logged.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_stream_begins_where_qemus_log_has_its_first_bytes() {
        // Nothing was logged after the length was read.
        assert_eq!(start_of_stream(b"", b"login: "), 0);
        // The guest wrote nothing before the connection, and QEMU has logged a part.
        assert_eq!(start_of_stream(b"log", b"login: "), 0);
        // The guest wrote something, which contains the same bytes.
        assert_eq!(start_of_stream(b"hello e", b"e"), 6);
        assert_eq!(start_of_stream(b"boot\r\nlogin: ", b"login: "), 6);
        // QEMU has not logged any of the stream yet.
        assert_eq!(start_of_stream(b"boot\r\n", b"login: "), 6);
        // Later bytes were logged twice.
        let line = (0..100)
            .map(|number| format!("{number} "))
            .collect::<String>();
        let logged = format!("before {line}xxyy");
        assert_eq!(
            start_of_stream(logged.as_bytes(), format!("{line}xy").as_bytes()),
            7
        );
    }

    #[test]
    fn what_came_before_the_connection_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "BIOS\r\n").unwrap();
        let (log, before) = QemuLog::read(path.clone());
        assert_eq!(before, b"BIOS\r\n");
        assert_eq!(log.read_new(), b"");
        std::fs::write(&path, "BIOS\r\nLinux\r\n").unwrap();
        assert_eq!(log.read_new(), b"Linux\r\n");
        let (none, before) = QemuLog::read(dir.path().join("none"));
        assert!(before.is_empty() && none.read_new().is_empty());
    }
}
