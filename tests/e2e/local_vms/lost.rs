//! VMs of which a part has died: the supervisor, the launcher, QEMU.

use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::console::read_until;
use super::{
    directory, kill_process_of, laptop, laptop_with_linux, nothing_runs, processes, rows,
    rows_until, run_arguments, start_detached, supervisor, typing_console,
};
use crate::harness::UP;
use crate::launcherctl::{done, launcherctl, refused, signal};

#[tokio::test]
async fn a_vm_without_its_supervisor_runs_on_and_is_shut_down_by_stop() {
    let (laptop, home, _stop) = laptop_with_linux();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    signal(supervisor(&laptop), "KILL");
    // Its console is QEMU's own now.
    let mut verb = typing_console(&home, "echo typed-$((1+1))\n");
    read_until(verb.stdout.as_mut().unwrap(), "typed-2");
    signal(verb.id(), "TERM");
    verb.wait().unwrap();
    assert_eq!(done(&home, &["stop"]).await, "laptop: has ended");
    assert!(rows(&laptop).await.is_empty() && !root.exists());
    assert_eq!(processes(&laptop), Vec::<u32>::new());
}

#[tokio::test]
async fn a_detached_vm_that_fails_leaves_its_reason_and_its_log() {
    let (laptop, home, _stop) = laptop();
    let mut former = None;
    for (program, reason) in [
        ("qemu", "its QEMU was killed"),
        ("virt-launcher", "the launcher was killed (by the kernel"),
    ] {
        start_detached(&laptop).await;
        let root = directory(&laptop).await;
        // What the VM before has left went with its name.
        assert!(former.is_none_or(|former: PathBuf| !former.exists()));
        kill_process_of(&laptop, program);
        rows_until(&laptop, |rows| rows[0]["state"] == "Failed").await;
        let status = done(&home, &["status", "laptop"]).await;
        assert!(
            status.starts_with("laptop: Failed\n") && status.contains(reason),
            "{status}"
        );
        let list = done(&home, &["list"]).await;
        assert!(list.contains("laptop: the VM has failed (since "), "{list}");
        for verb in [
            ["console", "laptop"].as_slice(),
            &["launcher", "dumpxml", "laptop"],
            &["pause", "laptop"],
            &["ssh", "laptop"],
            &["volumes"],
        ] {
            let error = refused(&home, verb).await;
            assert!(error.contains("laptop has failed: "), "{verb:?}: {error}");
        }
        // It is the only VM.
        assert_eq!(done(&home, &["status"]).await, status);
        let log = done(&home, &["logs"]).await;
        assert!(log.contains("Domain started."), "{log}");
        let console = done(&home, &["logs", "--console"]).await;
        assert!(console.contains(UP), "{console}");
        nothing_runs(&laptop).await;
        former = Some(root);
    }
    let root = former.unwrap();
    assert!(root.join("launcher.log").exists() && !root.join("vmi.json").exists());
    assert_eq!(
        done(&home, &["stop", "laptop"]).await,
        "laptop: had failed; its logs are removed"
    );
    assert!(rows(&laptop).await.is_empty() && !root.exists());
}

/// A VM of which only QEMU is left.
#[tokio::test]
async fn the_name_of_a_lost_vm_is_free_once_its_guest_has_ended() {
    let (laptop, home, _stop) = laptop();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    signal(supervisor(&laptop), "KILL");
    kill_process_of(&laptop, "virt-launcher");
    rows_until(&laptop, |rows| rows[0]["state"] == "lost").await;
    let pid = rows(&laptop).await[0]["guestPid"].as_u64().unwrap();
    for verb in ["list", "status laptop", "status"] {
        let shown = done(&home, &verb.split(' ').collect::<Vec<_>>()).await;
        assert!(shown.contains("its guest still runs"), "{verb}: {shown}");
    }
    let arguments = run_arguments(&laptop);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let error = refused(&home, &arguments).await;
    let expected = format!("still runs (QEMU is process {pid}); launcherctl stop");
    assert!(error.contains(&expected), "{error}");
    let error = refused(&home, &["shutdown"]).await;
    assert!(error.contains(&expected), "{error}");
    assert!(root.exists());
    kill_process_of(&laptop, "qemu");
    nothing_runs(&laptop).await;
    start_detached(&laptop).await;
    assert!(!root.exists(), "the lost VM's directory is left");
    assert_eq!(done(&home, &["stop", "laptop"]).await, "laptop: has ended");
}

#[tokio::test]
async fn a_killed_run_takes_its_vm_with_it() {
    let (laptop, _home, _stop) = laptop();
    let mut child = launcherctl(&laptop.path(""))
        .args(run_arguments(&laptop))
        .env("TMPDIR", laptop.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The guest writes: it runs.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let root = directory(&laptop).await;
    child.kill().unwrap();
    child.wait().unwrap();
    rows_until(&laptop, <[Value]>::is_empty).await;
    assert_eq!(processes(&laptop), Vec::<u32>::new());
    assert!(!root.exists());
}
