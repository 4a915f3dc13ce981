//! A log that nobody reads: the launcher's standard error is a full pipe.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use serde_json::Value;

use crate::harness::{Pod, Vmi};

#[tokio::test]
async fn a_log_that_nobody_reads_holds_nothing_up() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("unread").with_counter(&pod);
    let log = pod.root().join("unread");
    mkfifoat(CWD, &log, Mode::RUSR | Mode::WUSR).unwrap();
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(nonblocking);
    let mut pipe = options.open(&log).unwrap();
    while pipe.write(&[b'\n'; 4096]).is_ok() {}
    pod.handler.serve();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$@\" 2>\"$0\""]).arg(&log);
    pod.launch_monitored_by(&mut shell, &vmi, &["-v", "9"]);
    pod.wait_until_ready().await;
    pod.sync_ok(&vmi).await;
    pod.handler.status("Running").await;
    pod.pause(&vmi).await;
    pod.handler.status("Paused").await;
    pod.end(&vmi).await;
    assert_eq!(pod.exit_code().await, 0);

    let mut text = Vec::new();
    let _ = pipe.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    // The last one may have been cut off by the process's end.
    let lines: Vec<&str> = text.trim_start().lines().collect();
    for line in &lines[..lines.len().saturating_sub(1)] {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}
