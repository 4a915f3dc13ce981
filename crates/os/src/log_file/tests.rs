use super::*;
use std::io::Write;

/// A log in a directory of its own, read by hand.
struct Bench {
    _dir: tempfile::TempDir,
    path: PathBuf,
    log: LogFile,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("virt-serial0-log");
        Self {
            log: LogFile::new(&path),
            path,
            _dir: dir,
        }
    }

    fn write(&self, text: &str) {
        File::options()
            .append(true)
            .create(true)
            .open(&self.path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn rotate(&self) {
        for number in (0..2)
            .rev()
            .filter(|number| rotated(&self.path, *number).exists())
        {
            std::fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1)).unwrap();
        }
        std::fs::rename(&self.path, rotated(&self.path, 0)).unwrap();
    }

    fn read(&mut self) -> String {
        let mut text = Vec::new();
        let mut each = |part: &[u8]| {
            text.extend_from_slice(part);
            Ok::<(), ()>(())
        };
        while self.log.read(&mut each).unwrap() == Progress::More {}
        String::from_utf8(text).unwrap()
    }
}

#[test]
fn only_whole_lines_are_handed_on() {
    let mut bench = Bench::new();
    assert_eq!(bench.read(), "");
    bench.write("one\r\n\ntw");
    assert_eq!(bench.read(), "one\r\n\n");
    bench.write("o\nlogin: ");
    assert_eq!(bench.read(), "two\n");
    assert_eq!(bench.read(), "");
}

#[test]
fn a_line_that_a_rotation_splits_is_whole() {
    let mut bench = Bench::new();
    bench.write("one\ntw");
    assert_eq!(bench.read(), "one\n");
    bench.write("o, ");
    bench.rotate();
    assert_eq!(bench.read(), "");
    bench.write("still two\n");
    assert_eq!(bench.read(), "two, still two\n");
}

#[test]
fn several_rotations_between_two_reads_lose_nothing() {
    let mut bench = Bench::new();
    bench.write("0\n");
    assert_eq!(bench.read(), "0\n");
    let mut expected = String::new();
    for number in 1..=3 {
        bench.write(&format!("{number} before\n"));
        expected += &format!("{number} before\n");
        if number < 3 {
            bench.rotate();
        }
    }
    assert_eq!(bench.read(), expected);
    bench.write("4\n");
    assert_eq!(bench.read(), "4\n");
}

#[test]
fn a_rotation_that_has_not_made_the_new_log_yet_is_waited_for() {
    let mut bench = Bench::new();
    bench.write("1\n");
    bench.read();
    bench.rotate();
    bench.write("2\n");
    bench.rotate();
    assert_eq!(bench.read(), "2\n");
    bench.write("3\n");
    assert_eq!(bench.read(), "3\n");
}

#[test]
fn older_logs_are_not_of_this_guest() {
    let mut bench = Bench::new();
    bench.write("old\n");
    bench.rotate();
    bench.write("new\n");
    assert_eq!(bench.read(), "new\n");
    std::fs::remove_file(&bench.path).unwrap();
    assert_eq!(bench.read(), "");
    bench.write("newer\n");
    assert_eq!(bench.read(), "newer\n");
}

#[test]
// D-log-2 (docs/differences.md).
fn a_truncated_log_is_read_from_its_beginning() {
    let mut bench = Bench::new();
    bench.write("one\nbegun");
    assert_eq!(bench.read(), "one\n");
    File::create(&bench.path).unwrap();
    assert_eq!(bench.read(), "begun\n");
    bench.write("two\n");
    assert_eq!(bench.read(), "two\n");
}

#[test]
fn a_very_long_line_comes_in_parts() {
    let mut bench = Bench::new();
    let long = "x".repeat(MAX_LINE_BYTES * 3 + 5);
    bench.write(&long);
    let first = bench.read();
    assert_eq!(first.len(), MAX_LINE_BYTES * 3);
    bench.write("\nshort\nx");
    assert_eq!(first + &bench.read(), long + "\nshort\n");
    assert_eq!(bench.log.buffer.len(), MAX_LINE_BYTES);
}

#[test]
fn a_reader_that_refuses_is_not_a_log_that_cannot_be_read() {
    let mut bench = Bench::new();
    bench.write("one\n");
    let mut refuse = |_: &[u8]| Err("full");
    let refused = loop {
        match bench.log.read(&mut refuse) {
            Ok(Progress::More) => {}
            other => break other,
        }
    };
    assert!(matches!(refused, Err(LogReadError::Reader("full"))));
}

#[test]
fn what_is_not_a_regular_file_is_an_error_that_can_pass() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &path,
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    let mut log = LogFile::new(&path);
    let mut lines = Vec::new();
    let mut each = |part: &[u8]| {
        lines.extend_from_slice(part);
        Ok::<(), ()>(())
    };
    for _ in 0..2 {
        let Err(LogReadError::Log(error)) = log.read(&mut each) else {
            panic!("a FIFO was read");
        };
        assert_eq!(error.to_string(), "it is not a regular file");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(log.read(&mut each), Err(LogReadError::Log(_))));
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, "one\n").unwrap();
    while log.read(&mut each).unwrap() == Progress::More {}
    assert_eq!(lines, b"one\n");
}

#[test]
fn a_flood_is_read_in_parts() {
    let mut bench = Bench::new();
    let line = "x".repeat(1023) + "\n";
    bench.write(&line.repeat(1024));
    let (mut calls, mut bytes) = (0, 0);
    let mut each = |part: &[u8]| {
        bytes += part.len();
        Ok::<(), ()>(())
    };
    while bench.log.read(&mut each).unwrap() == Progress::More {
        calls += 1;
    }
    assert_eq!(bytes, 1 << 20);
    assert!(calls >= (1 << 20) / MAX_LINE_BYTES);
}
