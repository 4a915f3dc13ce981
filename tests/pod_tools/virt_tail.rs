//! `virt-tail` as a pod runs it.

use super::*;

pub struct Tail {
    lines: BufReader<ChildStdout>,
    pub running: Running,
}

impl Tail {
    pub fn of(log: &Path) -> Self {
        let mut running = Running::start(
            tool("virt-tail")
                .arg("--logfile")
                .arg(log)
                .stdout(Stdio::piped()),
        );
        Self {
            lines: BufReader::new(running.0.stdout.take().unwrap()),
            running,
        }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Until it has nothing to do.
    fn wait_until_idle(&self) {
        until("sleep", || self.running.sleeps().then_some(()));
    }
}

pub fn append(log: &Path, text: &str) {
    File::options()
        .append(true)
        .create(true)
        .open(log)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

#[test]
// D-tool-2 (docs/differences.md).
fn virt_tail_waits_for_the_log_and_its_directories() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("private/uid/virt-serial0-log");
    let mut tail = Tail::of(&log);
    for ancestor in [log.ancestors().nth(2).unwrap(), log.parent().unwrap()] {
        tail.wait_until_idle();
        std::fs::create_dir(ancestor).unwrap();
    }
    tail.wait_until_idle();
    append(&log, "first\nsec");
    assert_eq!(tail.line(), "first\n");
    append(&log, "ond\n\nfourth\r\n");
    assert_eq!(
        (tail.line(), tail.line(), tail.line()),
        ("second\n".into(), "\n".into(), "fourth\r\n".into())
    );
    // They may go, which the open log does not hide, and come back.
    std::fs::remove_file(&log).unwrap();
    tail.wait_until_idle();
    std::thread::sleep(Duration::from_millis(100));
    std::fs::remove_dir_all(dir.path().join("private")).unwrap();
    tail.wait_until_idle();
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    append(&log, "again\n");
    assert_eq!(tail.line(), "again\n");
}

#[test]
fn virt_tail_finds_a_log_whenever_its_directories_appear() {
    // Without pauses they appear at any point of its check.
    for _ in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a/b/log");
        let mut tail = Tail::of(&log);
        std::thread::sleep(Duration::from_micros(
            u64::from(tail.running.0.id() % 8) * 500,
        ));
        for ancestor in [log.ancestors().nth(2).unwrap(), log.parent().unwrap()] {
            std::fs::create_dir(ancestor).unwrap();
            std::thread::yield_now();
        }
        append(&log, "found\n");
        assert_eq!(tail.line(), "found\n");
    }
}

#[test]
fn virt_tail_prints_what_is_there_already_through_rotation_and_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("virt-serial0-log");
    append(&log, "there\n");
    let mut tail = Tail::of(&log);
    assert_eq!(tail.line(), "there\n");
    append(&log, "before, ");
    std::fs::rename(&log, dir.path().join("virt-serial0-log.0")).unwrap();
    append(&log, "after\n");
    assert_eq!(tail.line(), "before, after\n");
    std::fs::write(&log, "new\n").unwrap();
    assert_eq!(tail.line(), "new\n");
}

#[test]
// D-log-1 (docs/differences.md).
fn virt_tail_misses_nothing_of_a_flood_with_rotations() {
    const LINES: u32 = 35_000;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("virt-serial0-log");
    let mut tail = Tail::of(&log);
    let writer = log.clone();
    append(&log, "up\n");
    assert_eq!(tail.line(), "up\n");
    // As many rotations as virtlogd keeps logs: however late the reader is, all is there.
    let write = std::thread::spawn(move || {
        let rotated = |number: u32| PathBuf::from(format!("{}.{number}", writer.display()));
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(&writer)
            .unwrap();
        for number in 0..LINES {
            // Split anywhere, in the middle of a line.
            let line = format!("line {number:07} {}\n", "x".repeat(100));
            let (begin, end) = line.split_at(number as usize % line.len());
            file.write_all(begin.as_bytes()).unwrap();
            if number % 10_000 == 9_999 {
                for old in (0..2).rev().filter(|old| rotated(*old).exists()) {
                    std::fs::rename(rotated(old), rotated(old + 1)).unwrap();
                }
                std::fs::rename(&writer, rotated(0)).unwrap();
                file = File::options()
                    .append(true)
                    .create(true)
                    .open(&writer)
                    .unwrap();
            }
            file.write_all(end.as_bytes()).unwrap();
        }
    });
    for number in 0..LINES {
        let line = tail.line();
        assert!(
            line.starts_with(&format!("line {number:07} ")) && line.len() == 114,
            "{number}: {line:?}"
        );
    }
    write.join().unwrap();
}

#[test]
fn virt_tail_ends_with_0_at_sigterm_and_sigint() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    append(&log, "up\nno end");
    for signal in [Signal::TERM, Signal::INT] {
        let mut tail = Tail::of(&log);
        assert_eq!(tail.line(), "up\n");
        tail.running.send(signal);
        let (status, said) = tail.running.ended();
        assert_eq!(
            (status.code(), said.as_str(), tail.line().as_str()),
            (Some(0), "", "")
        );
    }
}

#[test]
// D-tool-3 (docs/differences.md).
fn virt_tail_ends_at_sigterm_though_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    append(&log, &"a line that nobody reads\n".repeat(100_000));
    let mut tail = Tail::of(&log);
    assert!(tail.line().ends_with("nobody reads\n"));
    tail.wait_until_idle();
    tail.running.send(Signal::TERM);
    assert_eq!(tail.running.ended().0.code(), Some(0));
}

#[test]
fn virt_tail_ends_when_its_reader_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let Tail { lines, mut running } = Tail::of(&log);
    drop(lines);
    // Again and again: another test's child may have the reader's end until it runs its program.
    let status = until("the end", || {
        append(&log, "one\n");
        running.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(1));
}

#[test]
fn virt_tail_without_a_log_ends_with_1() {
    let output = tool("virt-tail").args(["--other", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("--logfile"));
    assert_eq!(
        tool("virt-tail")
            .arg("--logfile")
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code(),
        Some(2)
    );
}

#[test]
fn virt_tail_tries_again_while_the_log_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let mut tail = Tail::of(&log);
    tail.wait_until_idle();
    std::fs::remove_dir(&log).unwrap();
    append(&log, "one\n");
    assert_eq!(tail.line(), "one\n");
}

#[test]
fn virt_tail_does_not_wait_for_the_writer_of_a_fifo_in_the_logs_place() {
    use rustix::fs::{CWD, Mode, mkfifoat};
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    mkfifoat(CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
    let mut tail = Tail::of(&log);
    tail.wait_until_idle();
    std::fs::remove_file(&log).unwrap();
    append(&log, "one\n");
    assert_eq!(tail.line(), "one\n");
    tail.running.send(Signal::TERM);
    assert_eq!(tail.running.ended().0.code(), Some(0));
}
