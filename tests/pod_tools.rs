//! The small tools as real processes, with real signals: `container-disk` and `virt-tail` as a pod runs them, and what
//! `launcherctl` does without a launcher.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const POD_TOOLS: &str = env!("CARGO_BIN_EXE_pod-tools");

/// What takes longer counts as not happening.
const NEVER: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < NEVER, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(POD_TOOLS);
    command.arg(name);
    command
}

/// A tool that runs; it is killed with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(&mut self) -> (ExitStatus, String) {
        let status = until("the end", || self.0.try_wait().unwrap());
        let mut said = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (status, said)
    }

    fn wake_ups(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap();
        count.trim().parse().unwrap()
    }

    fn sleeps(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('S')
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---- container-disk ------------------------------------------------------------------------------------------------

fn disk(arguments: &[&str]) -> Output {
    tool("container-disk")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn error_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct Disk {
    dir: tempfile::TempDir,
    socket: PathBuf,
    running: Running,
}

impl Disk {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(
            tool("container-disk")
                .arg("--copy-path")
                .arg(dir.path().join("uid/disk_0")),
        );
        let socket = dir.path().join("uid/disk_0.sock");
        until("the socket", || UnixStream::connect(&socket).ok());
        Self {
            dir,
            socket,
            running,
        }
    }
}

#[test]
fn container_disk_with_no_op_ends_at_once_and_silently() {
    let output = disk(&["--no-op"]);
    assert_eq!(
        (
            output.status.code(),
            output.stdout.len(),
            output.stderr.len()
        ),
        (Some(0), 0, 0)
    );
}

#[test]
fn container_disk_is_found_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    // As the init container does: a copy of the link's target.
    let copy = dir.path().join("container-disk");
    std::fs::copy(POD_TOOLS, &copy).unwrap();
    // Another test that forks at this moment holds the copy open for writing for a moment.
    let status = until("a start", || {
        Command::new(&copy).arg("--no-op").status().ok()
    });
    assert!(status.success());
    assert_eq!(
        Command::new(&copy)
            .arg("--copy-path")
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code(),
        Some(1)
    );
}

#[test]
fn container_disk_refuses_other_arguments_with_status_1() {
    for (arguments, why) in [
        (&["--unknown"][..], "--unknown"),
        (&["-n"], "-n"),
        (&["-c"], "-c"),
        (&[], "--copy-path"),
    ] {
        let output = disk(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = error_of(&output);
        let (_date, message) = said.split_once('\n').unwrap();
        assert!(
            message.starts_with("error: ") && message.contains(why),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn container_disk_ends_at_sigterm_and_removes_its_socket() {
    let mut disk = Disk::start();
    disk.running.send(Signal::TERM);
    let (status, said) = disk.running.ended();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(!disk.socket.exists() && disk.dir.path().join("uid").is_dir());
}

#[test]
fn container_disk_ends_when_its_socket_is_removed() {
    let mut disk = Disk::start();
    std::fs::remove_file(&disk.socket).unwrap();
    let (status, said) = disk.running.ended();
    assert_eq!(status.code(), Some(0));
    assert!(
        said.ends_with(&format!(
            "error: socket {} does not exist anymore\n",
            disk.socket.display()
        )),
        "{said}"
    );
}

#[test]
fn container_disk_ends_when_its_directory_is_removed_or_renamed() {
    let mut disk = Disk::start();
    std::fs::remove_dir_all(disk.dir.path().join("uid")).unwrap();
    assert_eq!(disk.running.ended().0.code(), Some(0));
    let mut disk = Disk::start();
    std::fs::rename(disk.dir.path().join("uid"), disk.dir.path().join("other")).unwrap();
    assert_eq!(disk.running.ended().0.code(), Some(0));
}

#[test]
fn container_disk_stays_while_other_files_come_and_go() {
    let mut disk = Disk::start();
    for _ in 0..3 {
        let other = disk.dir.path().join("uid/disk_1.sock");
        std::fs::write(&other, "").unwrap();
        std::fs::remove_file(&other).unwrap();
        until("sleep", || disk.running.sleeps().then_some(()));
    }
    assert!(disk.running.0.try_wait().unwrap().is_none());
    drop(UnixStream::connect(&disk.socket).unwrap());
}

#[test]
// D-tool-1 (docs/differences.md).
fn container_disk_ends_without_a_watch_too() {
    // A user may have no watch left. In a user namespace of its own the limit is ours to set.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk_0");
    let script =
        "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" container-disk -c \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", script, POD_TOOLS])
        .arg(&path);
    let mut running = Running::start(&mut command);
    let socket = path.with_extension("sock");
    let up = until("a start or its refusal", || {
        let refused = running.0.try_wait().unwrap().map(|_| false);
        UnixStream::connect(&socket).ok().map(|_| true).or(refused)
    });
    if !up {
        eprintln!("skipped: no user namespaces here: {}", running.ended().1);
        return;
    }
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(running.ended().0.code(), Some(0));
}

#[test]
fn container_disk_takes_a_path_of_102_characters_and_no_longer_one() {
    let dir = tempfile::tempdir().unwrap();
    for (length, fits) in [(102, true), (103, false)] {
        let path = format!("uid/{}", "x".repeat(length - 4));
        let mut running = Running::start(
            tool("container-disk")
                .arg("-c")
                .arg(&path)
                .current_dir(dir.path()),
        );
        if fits {
            let socket = dir.path().join(format!("{path}.sock"));
            until("the socket", || socket.exists().then_some(()));
            running.send(Signal::TERM);
            assert_eq!(running.ended().0.code(), Some(0));
        } else {
            let (status, said) = running.ended();
            assert_eq!(status.code(), Some(1));
            assert!(
                said.ends_with("error: copy path can not be longer than 102 characters\n"),
                "{said}"
            );
        }
    }
}

#[test]
// D-log-3 (docs/differences.md).
fn container_disk_says_what_it_cannot_make() {
    let dir = tempfile::tempdir().unwrap();
    let output = disk(&["-c", dir.path().join("a/b/disk_0").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error_of(&output).contains("\nerror: failed to create disk directory "),
        "{}",
        error_of(&output)
    );
    std::fs::write(dir.path().join("disk_0.sock"), "").unwrap();
    let output = disk(&["-c", dir.path().join("disk_0").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error_of(&output).contains("\nerror: failed to bind socket "),
        "{}",
        error_of(&output)
    );
    assert!(dir.path().join("disk_0.sock").exists());
}

#[test]
fn container_disk_makes_directory_and_socket_with_the_callers_umask() {
    for (umask, mode) in [("000", 0o777), ("027", 0o750)] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("umask {umask}; exec \"$0\" container-disk -c \"$1\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, POD_TOOLS])
            .arg(dir.path().join("uid/disk_0"));
        let _running = Running::start(&mut command);
        let socket = dir.path().join("uid/disk_0.sock");
        until("the socket", || socket.exists().then_some(()));
        for path in [&socket, &dir.path().join("uid")] {
            assert_eq!(
                std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
                mode,
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn container_disk_closes_a_thousand_connections() {
    let mut disk = Disk::start();
    let socket = &disk.socket;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..125 {
                    let mut connection = UnixStream::connect(socket).unwrap();
                    connection.set_read_timeout(Some(NEVER)).unwrap();
                    assert_eq!(connection.read(&mut [0]).unwrap(), 0);
                }
            });
        }
    });
    let open = std::fs::read_dir(format!("/proc/{}/fd", disk.running.0.id()))
        .unwrap()
        .count();
    assert!(open < 10, "{open} descriptors are open");
    disk.running.send(Signal::TERM);
    assert_eq!(disk.running.ended().0.code(), Some(0));
}

// ---- virt-tail -----------------------------------------------------------------------------------------------------

struct Tail {
    lines: BufReader<ChildStdout>,
    running: Running,
}

impl Tail {
    fn of(log: &Path) -> Self {
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

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Until it has nothing to do.
    fn wait_until_idle(&self) {
        until("sleep", || self.running.sleeps().then_some(()));
    }
}

fn append(log: &Path, text: &str) {
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
    append(&log, "one\n");
    assert_eq!(running.ended().0.code(), Some(1));
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

// ---- virt-launcher-monitor -----------------------------------------------------------------------------------------

/// A directory with a monitor beside a launcher that fails at once. Links, as a file that was just written may still be
/// open in another test's child, and cannot be run then.
fn failing_pod() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(Path::new(POD_TOOLS).parent().unwrap()).unwrap();
    std::fs::hard_link(POD_TOOLS, dir.path().join("virt-launcher-monitor")).unwrap();
    std::os::unix::fs::symlink("/bin/false", dir.path().join("virt-launcher")).unwrap();
    dir
}

#[test]
fn the_monitor_reaps_the_launcher_also_when_its_parent_ignores_sigchld() {
    let dir = failing_pod();
    let mut command = Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(dir.path().join("virt-launcher-monitor"))
        .arg("--root")
        .arg(dir.path());
    let (status, log) = Running::start(&mut command).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("Reaped Launcher main pid"), "{log}");
}

#[test]
fn the_monitor_does_not_wait_for_the_writer_of_a_fifo_in_a_logs_place() {
    use rustix::fs::{CWD, Mode, mkfifoat};
    let dir = failing_pod();
    let logs = dir.path().join("var/run/kubevirt-private/libvirt/qemu/log");
    std::fs::create_dir_all(&logs).unwrap();
    mkfifoat(CWD, logs.join("a.log"), Mode::from_raw_mode(0o600)).unwrap();
    std::fs::write(logs.join("b.log"), "the last line").unwrap();
    let mut command = Command::new(dir.path().join("virt-launcher-monitor"));
    command.arg("--root").arg(dir.path());
    let (status, log) = Running::start(&mut command).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("\"msg\":\"the last line\""), "{log}");
}

// ---- both ----------------------------------------------------------------------------------------------------------

#[test]
fn they_do_not_wake_up_while_nothing_happens() {
    let disk = Disk::start();
    // Away from what other tests do in the directory of temporary files.
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("quiet");
    std::fs::create_dir(&dir).unwrap();
    append(&dir.join("log"), "up\n");
    let mut tail = Tail::of(&dir.join("log"));
    assert_eq!(tail.line(), "up\n");
    let waiting = Tail::of(&dir.join("missing/log"));
    let all = [&disk.running, &tail.running, &waiting.running];
    // They may still be starting.
    until("a time without wake-ups", || {
        let before = all.map(Running::wake_ups);
        std::thread::sleep(Duration::from_secs(3));
        (all.map(Running::wake_ups) == before).then_some(())
    });
}

#[test]
fn every_program_says_version_and_build() {
    let list = Command::new(POD_TOOLS).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let mut programs: Vec<(&str, Command)> = list
        .lines()
        // Its --version is that of the hook protocol.
        .filter(|name| *name != "sidecar-shim")
        .map(|name| (name, tool(name)))
        .collect();
    programs.push(("pod-tools", Command::new(POD_TOOLS)));
    #[cfg(feature = "libvirt")]
    programs.push((
        "virt-launcher",
        Command::new(env!("CARGO_BIN_EXE_virt-launcher")),
    ));
    assert!(programs.len() >= 5);
    for (name, mut program) in programs {
        let output = program.arg("--version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let expected = format!("{name} {} (", env!("CARGO_PKG_VERSION"));
        assert!(
            output.status.success() && text.starts_with(&expected),
            "{text}"
        );
        assert!(
            text.contains("(commit ") || text.contains("(debug build)"),
            "{text}"
        );
    }
}

// ---- launcherctl ---------------------------------------------------------------------------------------------------

#[test]
fn launcherctl_refuses_devices_of_the_wrong_type_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    for (devices, field) in [
        ("{disks: [foo]}", "spec.domain.devices.disks[0]"),
        ("none", "spec.domain.devices"),
    ] {
        let vmi = format!(
            "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec:\n  domain: {{memory: {{guest: 64Mi}}, devices: {devices}}}\n  volumes: [{{name: root, emptyDisk: {{capacity: 1Mi}}}}]\n"
        );
        std::fs::write(&file, vmi).unwrap();
        for verb in [
            &["convert"][..],
            &["explain"],
            &["plan", "--socket", "/nonexistent"],
            &["run"],
        ] {
            let output = tool("launcherctl").args(verb).arg(&file).output().unwrap();
            let error = error_of(&output);
            assert_eq!(output.status.code(), Some(1), "{verb:?}: {error}");
            assert!(
                error.contains(&format!("vmi.yaml: {field}: ")),
                "{verb:?}: {error}"
            );
        }
    }
}
