//! `launcherctl stop`: asked twice, too early, by force.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::console::read_until;
use super::{
    StopAll, directory, laptop, laptop_with_linux, process_of, processes, rows, rows_until,
    run_arguments, start_detached, supervisor,
};
use crate::executable::write_script;
use crate::launcherctl::{Laptop, done, launcherctl, refused, signal};

fn set_grace_period(laptop: &Laptop, seconds: u64) {
    let manifest = laptop.path("vmi.json");
    let mut vmi: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    vmi["spec"]["terminationGracePeriodSeconds"] = seconds.into();
    std::fs::write(&manifest, vmi.to_string()).unwrap();
}

#[tokio::test]
async fn a_guest_that_boots_is_asked_to_shut_down_until_it_is_down() {
    let (laptop, home, _stop) = laptop_with_linux();
    set_grace_period(&laptop, 240);
    let disk = laptop.root_disk();
    let manifest = laptop.path("vmi.json").display().to_string();
    let arguments = ["run", "--emulate", "--detach", "--disk", &disk, &manifest];
    done(&home, &arguments).await;
    // Its kernel does not run yet.
    let stop = launcherctl(&home)
        .arg("stop")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    rows_until(&laptop, |rows| rows[0]["state"] == "stopping").await;
    let output = stop.wait_with_output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notes}");
    assert!(!notes.contains("has not shut down within"), "{notes}");
}

#[tokio::test]
async fn a_guest_without_a_grace_period_is_asked_too() {
    let (laptop, home, _stop) = laptop();
    set_grace_period(&laptop, 0);
    start_detached(&laptop).await;
    // It may be down after the verb has given up.
    let _ = launcherctl(&home).arg("shutdown").output().unwrap();
    rows_until(&laptop, <[Value]>::is_empty).await;
}

#[tokio::test]
async fn stop_waits_for_the_grace_period_of_the_last_sync() {
    let (laptop, home, _stop) = laptop();
    set_grace_period(&laptop, 0);
    start_detached(&laptop).await;
    set_grace_period(&laptop, 240);
    let manifest = laptop.path("vmi.json").display().to_string();
    done(&home, &["sync", &manifest]).await;
    let output = launcherctl(&home).arg("stop").output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("guest is asked to shut down"), "{notes}");
    assert!(!notes.contains("forced off"), "{notes}");
}

/// Its launcher never serves.
#[tokio::test]
async fn a_stop_before_the_guest_is_started_is_no_failure_of_the_stop() {
    let laptop = Laptop::new();
    let _stop = StopAll(laptop.path(""));
    let home = laptop.path("");
    let launcher = laptop.path("launcher.sh");
    write_script(&launcher, "#!/bin/sh\nexec sleep 1000\n");
    let started = launcherctl(&home)
        .args(run_arguments(&laptop))
        .arg("--launcher")
        .arg(&launcher)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_starting = |rows: &[Value]| rows.first().is_some_and(|row| row["state"] == "starting");
    rows_until(&laptop, is_starting).await;
    let error = refused(&home, &["pause"]).await;
    assert!(error.contains("laptop is starting or stopping"), "{error}");
    let stop = launcherctl(&home).arg("stop").output().unwrap();
    assert_eq!(stop.stdout, b"laptop: has ended\n");
    assert_eq!(String::from_utf8_lossy(&stop.stderr), "");
    let output = started.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the VM was stopped before its guest was started"),
        "{said}"
    );
    assert!(rows(&laptop).await.is_empty());
}

#[tokio::test]
async fn a_second_stop_waits_and_only_force_forces() {
    let (laptop, home, _stop) = laptop();
    // Longer than all of this takes.
    set_grace_period(&laptop, 120);
    start_detached(&laptop).await;
    // A paused guest does not shut down.
    done(&home, &["pause"]).await;
    let stop = || {
        launcherctl(&home)
            .args(["stop", "laptop"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = stop();
    read_until(
        first.stderr.as_mut().unwrap(),
        "shuts down only once it is resumed",
    );
    let mut waiting = [first, stop()];
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(waiting[1].try_wait().unwrap().is_none());
    assert_eq!(rows(&laptop).await[0]["state"], "Paused");
    assert_eq!(
        done(&home, &["stop", "laptop", "--force"]).await,
        "laptop: has ended"
    );
    for mut stop in waiting {
        assert!(stop.wait().unwrap().success());
    }
    assert!(rows(&laptop).await.is_empty());
}

#[tokio::test]
async fn force_ends_a_vm_whose_supervisor_hangs() {
    let (laptop, home, _stop) = laptop();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    let stopped = supervisor(&laptop);
    signal(stopped, "STOP");
    let said = done(&home, &["stop", "laptop", "--force"]).await;
    assert_eq!(said, "laptop: is forced off, without its supervisor");
    assert_eq!(processes(&laptop), Vec::<u32>::new());
    assert!(!root.exists() && !Path::new(&format!("/proc/{stopped}/exe")).exists());
    assert!(rows(&laptop).await.is_empty());
}

#[tokio::test]
async fn force_ends_a_vm_whose_launcher_hangs() {
    let (laptop, home, _stop) = laptop();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    signal(process_of(&laptop, "virt-launcher --name"), "STOP");
    let said = done(&home, &["stop", "laptop", "--force"]).await;
    assert_eq!(said, "laptop: has ended");
    assert_eq!(processes(&laptop), Vec::<u32>::new());
    assert!(!root.exists() && rows(&laptop).await.is_empty());
}
