//! The log of the guest's serial console in the VM's directory, with each byte once.
//!
//! QEMU's own log has some bytes twice: a write to a full socket is logged, and logged again when
//! it is repeated (QEMU's chardev/char.c, `qemu_chr_write_buffer`). It is right for output before
//! QEMU had a client, which starts this log; the rest comes from QEMU's socket.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::registry::VmDir;
use os::log_file::rotated;

/// Below the VM's directory.
const CONSOLE_LOG: &str = "/console.log";
/// A log of this size is rotated. One rotated log is kept.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How much of the end of QEMU's log is read.
const MAX_QEMU_LOG_BYTES: u64 = 1 << 20;
/// Number of bytes of QEMU's log that are compared with its stream. The socket holds more writes of
/// one byte than that, so QEMU's log has none of these twice.
const MAX_COMPARED_BYTES: usize = 200;

/// The log of the guest's serial console; missing if the guest has none.
pub fn console_log_file(dir: &VmDir) -> PathBuf {
    dir.path(CONSOLE_LOG)
}

/// The log's files, oldest first.
pub fn console_log_files(dir: &VmDir) -> [PathBuf; 2] {
    let log = console_log_file(dir);
    [rotated(&log, 0), log]
}

pub fn remove(dir: &VmDir) {
    for file in console_log_files(dir) {
        let _ = fs::remove_file(file);
    }
}

/// The log being written.
#[derive(Debug)]
pub struct ConsoleLog {
    path: PathBuf,
    /// `None` if it could not be made.
    file: Option<File>,
    length: u64,
}

impl ConsoleLog {
    /// Starts a new log in place of the previous one.
    pub fn create(dir: &VmDir) -> Self {
        remove(dir);
        let path = console_log_file(dir);
        Self {
            file: File::create(&path).ok(),
            path,
            length: 0,
        }
    }

    /// Appends `bytes`. A full file system loses them, and the console goes on.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.length >= MAX_FILE_BYTES && fs::rename(&self.path, rotated(&self.path, 0)).is_ok() {
            self.file = File::create(&self.path).ok();
            self.length = 0;
        }
        if let Some(file) = &mut self.file {
            let _ = file.write_all(bytes);
            self.length = self.length.saturating_add(bytes.len() as u64);
        }
    }
}

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
    use super::super::log_follower::LogFollower;
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
        fs::write(&path, "BIOS\r\n").unwrap();
        let (log, before) = QemuLog::read(path.clone());
        assert_eq!(before, b"BIOS\r\n");
        assert_eq!(log.read_new(), b"");
        fs::write(&path, "BIOS\r\nLinux\r\n").unwrap();
        assert_eq!(log.read_new(), b"Linux\r\n");
        let (none, before) = QemuLog::read(dir.path().join("none"));
        assert!(before.is_empty() && none.read_new().is_empty());
    }

    #[test]
    fn the_log_has_a_limit_and_its_lines_are_followed_over_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let mut log = ConsoleLog::create(&dir);
        let mut follower = LogFollower::open(&console_log_file(&dir)).unwrap();
        let line = |number: usize| format!("line {number} {}\r\n", "x".repeat(100));
        let (mut written, mut followed) = (String::new(), String::new());
        for number in 0..30_000 {
            written.push_str(&line(number));
            // A rotation cuts lines.
            log.write(b"li");
            log.write(line(number).trim_start_matches("li").as_bytes());
            if number % 1000 == 0 {
                followed += &follower.read_new();
            }
        }
        followed += &follower.read_new();
        assert!(
            written == followed,
            "{} of {}",
            followed.len(),
            written.len()
        );
        let size = |file: &PathBuf| file.metadata().unwrap().len();
        let sizes = console_log_files(&dir).each_ref().map(size);
        assert!(sizes.iter().all(|size| *size < MAX_FILE_BYTES + 200));
        // A later reader gets both files.
        let kept = LogFollower::open(&console_log_file(&dir))
            .unwrap()
            .read_new();
        assert_eq!(kept.len() as u64, sizes.iter().sum::<u64>());
        assert!(written.ends_with(&kept));
        let _ = ConsoleLog::create(&dir);
        assert!(console_log_files(&dir).map(|file| file.exists()) == [false, true]);
    }
}
