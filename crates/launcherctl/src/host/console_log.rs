//! The log of the guest's serial console in the VM's directory, with each byte once and a limit.
//!
//! QEMU's own log has some bytes twice: a write to a full socket is logged, and logged again when
//! it is repeated (QEMU's chardev/char.c, `qemu_chr_write_buffer`). It is right for output before
//! QEMU had a client, which starts this log; the rest comes from QEMU's socket.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use super::vm_dir::VmDir;
use os::log_file::rotated;

/// A log of this size is rotated. One rotated log is kept.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Number of bytes of QEMU's log that are compared with its stream. The socket holds more writes of
/// one byte than that, so QEMU's log has none of these twice.
const MAX_COMPARED_BYTES: usize = 200;

/// Its files, the newer one first.
pub fn files(dir: &VmDir) -> [PathBuf; 2] {
    let log = dir.path("/console.log");
    [log.clone(), rotated(&log, 0)]
}

/// Appends `bytes`. A full file system loses them, and the console goes on.
pub fn append(dir: &VmDir, bytes: &[u8]) {
    let [log, older] = files(dir);
    if log.metadata().is_ok_and(|it| it.len() >= MAX_FILE_BYTES) {
        let _ = fs::rename(&log, older);
    }
    let file = File::options().append(true).create(true).open(log);
    let _ = file.and_then(|mut file| file.write_all(bytes));
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
        let line: String = (0..100).map(|number| format!("{number} ")).collect();
        let (logged, stream) = (format!("before {line}xxyy"), format!("{line}xy"));
        assert_eq!(start_of_stream(logged.as_bytes(), stream.as_bytes()), 7);
    }

    #[test]
    fn the_log_has_a_limit_and_its_lines_are_followed_over_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        append(&dir, b"");
        let mut follower = LogFollower::open(&files(&dir)[0]).unwrap();
        let line = |number: usize| format!("line {number} {}\r\n", "x".repeat(1000));
        let (mut written, mut followed) = (String::new(), String::new());
        for number in 0..3000 {
            written.push_str(&line(number));
            // A rotation cuts lines.
            append(&dir, b"li");
            append(&dir, line(number).trim_start_matches("li").as_bytes());
            if number % 100 == 0 {
                followed += &follower.read_new();
            }
        }
        followed += &follower.read_new();
        let (got, all) = (followed.len(), written.len());
        assert!(written == followed, "{got} of {all}");
        let sizes = files(&dir).map(|file| file.metadata().unwrap().len());
        assert!(sizes.iter().all(|size| *size < MAX_FILE_BYTES + 2000));
    }
}
