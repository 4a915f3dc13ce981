//! `virt-launcher-monitor` beside a launcher that fails.

use super::*;

const MONITOR: &str = env!("CARGO_BIN_EXE_virt-launcher-monitor");

/// A directory with a monitor beside a launcher that fails at once. Links, as a file that was just
/// written may still be open in another test's child, and cannot be run then.
fn failing_pod() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(Path::new(MONITOR).parent().unwrap()).unwrap();
    std::fs::hard_link(MONITOR, dir.path().join("virt-launcher-monitor")).unwrap();
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
