//! The log of the console of a VM of `launcherctl run`: each line as the guest has written it, also
//! where QEMU's own log has bytes twice, and also after the guest has crashed.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Guest, TEST_TIMEOUT, UP, output_of};
use crate::launcherctl::{done, launcherctl, signal};
use crate::local_vms::{directory, laptop, laptop_with_linux, rows, start_detached, supervisor};

/// Lines that the guest writes.
const LINES: usize = 2000;
/// More than a unix socket holds of writes of one byte.
const MORE_THAN_A_SOCKET_HOLDS: u64 = 250;

#[tokio::test]
async fn each_line_of_the_console_is_logged_once() {
    let (laptop, home, _stop) = laptop_with_linux();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    let vmi = std::fs::read(root.join("vmi.json")).unwrap();
    let vmi: Value = serde_json::from_slice(&vmi).unwrap();
    let uid = vmi["metadata"]["uid"].as_str().unwrap();
    let qemu_log = root.join(format!("var/run/kubevirt-private/{uid}/virt-serial0-log"));
    let mut guest = Guest::connect(&root.join("console.sock")).await;
    guest.until(UP).await;
    // The supervisor does not read while the guest writes: QEMU's socket is full.
    let length = || qemu_log.metadata().unwrap().len();
    guest
        .send(&format!(
            "echo be''gin; sleep 3; n=0; while [ $n -lt {LINES} ]; do n=$((n+1)); echo line $n of the guest; done; echo e''nd"
        ))
        .await;
    guest.until("begin").await;
    signal(supervisor(&laptop), "STOP");
    let before = length();
    let end = Instant::now() + TEST_TIMEOUT;
    while length() < before + MORE_THAN_A_SOCKET_HOLDS {
        assert!(Instant::now() < end, "QEMU logs nothing");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    signal(supervisor(&laptop), "CONT");
    guest.until("end").await;
    let end = Instant::now() + TEST_TIMEOUT;

    let expected: String = (1..=LINES)
        .map(|number| format!("line {number} of the guest\r\n"))
        .collect();
    let log = std::fs::read_to_string(&qemu_log).unwrap();
    assert!(!log.contains(&expected), "QEMU's log is right");
    // The log comes after the console.
    let mut log = String::new();
    while !log.contains("\nend") {
        assert!(Instant::now() < end, "{log}");
        log = done(&home, &["logs", "laptop", "--console"]).await;
    }
    assert!(log.contains(&expected), "{log}");
    // It has what the guest wrote before the console was served too.
    assert_eq!(log.matches(UP).count(), 1, "{log}");
}

#[tokio::test]
async fn a_panic_is_told_from_a_killed_qemu() {
    let (laptop, home, _stop) = laptop_with_linux();
    let vmi = std::fs::read(laptop.path("vmi.json")).unwrap();
    let mut vmi: Value = serde_json::from_slice(&vmi).unwrap();
    vmi["spec"]["domain"]["devices"]["panicDevices"] = json!([{"model": "isa"}]);
    std::fs::write(laptop.path("vmi.json"), vmi.to_string()).unwrap();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    let mut guest = Guest::connect(&root.join("console.sock")).await;
    guest.until(UP).await;
    guest.send("echo c >/proc/sysrq-trigger").await;
    while rows(&laptop).await[0]["state"] != "Failed" {}
    let status = done(&home, &["status", "laptop"]).await;
    assert!(status.contains("its kernel has panicked"), "{status}");
    let log = done(&home, &["logs", "--console"]).await;
    assert!(
        log.contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{log}"
    );
    assert_eq!(
        done(&home, &["stop"]).await,
        "laptop: had failed; its logs are removed"
    );
}

/// A guest that writes to its serial port without end, in the first sector of its disk.
fn endless_writer() -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    // mov dx, 0x3f8; mov al, 'x'; again: out dx, al; jmp again
    disk[..8].copy_from_slice(&[0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[tokio::test]
async fn a_guest_that_writes_without_end_does_not_fill_the_disk() {
    const LIMIT: u64 = 4 << 20;
    let (laptop, home, _stop) = laptop();
    std::fs::write(laptop.path("guest.img"), endless_writer()).unwrap();
    let disk = laptop.root_disk();
    let mut command = launcherctl(&home);
    command
        .args(["run", "--emulate", "--detach", "--disk", &disk])
        .arg(laptop.path("vmi.json"))
        .env("TMPDIR", &home);
    let output = output_of(command).await;
    assert!(output.status.success(), "{output:?}");
    let root = directory(&laptop).await;
    let uid = done(&home, &["status", "-o", "json"]).await;
    let uid: Value = serde_json::from_str(&uid).unwrap();
    let uid = uid["uid"].as_str().unwrap();
    let qemu_log = root.join(format!("var/run/kubevirt-private/{uid}/virt-serial0-log"));
    let length = |file: &Path| file.metadata().map_or(0, |it| it.len());
    let (mut longest, mut emptied) = (0, 0);
    let mut before = length(&qemu_log);
    let end = Instant::now() + 2 * TEST_TIMEOUT;
    let ours = [root.join("console.log"), root.join("console.log.0")];
    while emptied == 0 || length(&ours[1]) == 0 {
        assert!(
            Instant::now() < end,
            "{longest} bytes, emptied {emptied} times"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = length(&qemu_log);
        emptied += usize::from(now < before);
        longest = longest.max(now);
        before = now;
        assert!(
            longest < LIMIT,
            "QEMU's log of the console has {longest} bytes"
        );
    }
    assert!(ours.iter().all(|log| length(log) < LIMIT / 2));
    done(&home, &["stop", "--force"]).await;
}
