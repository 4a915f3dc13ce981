//! VMs of which a part has died: the supervisor, the launcher, QEMU.

use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use super::console::read_until;
use super::{
    StopAll, directory, kill_process_of, laptop, nothing_runs, processes, rows, rows_until,
    run_arguments, start_detached, supervisor, typing_console,
};
use crate::harness::{UP, Vmi, output_of};
use crate::launcherctl::{Laptop, done, launcherctl, refused, signal};

#[tokio::test]
async fn a_vm_without_its_supervisor_runs_on_and_is_shut_down_by_stop() {
    let (laptop, home, _stop) = laptop();
    start_detached(&laptop).await;
    let root = directory(&laptop).await;
    signal(supervisor(&laptop), "KILL");
    rows_until(&laptop, |rows| rows[0]["supervised"] != true).await;
    assert!(
        done(&home, &["list"])
            .await
            .contains("laptop: the VM has no supervisor: its supervisor was killed; ")
    );
    // Its console is QEMU's own now.
    let mut verb = typing_console(&home, "echo typed-$((1+1))\n");
    read_until(verb.stdout.as_mut().unwrap(), "typed-2");
    signal(verb.id(), "TERM");
    verb.wait().unwrap();
    assert_eq!(
        done(&home, &["stop"]).await,
        "laptop: has ended; it had no supervisor"
    );
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
    let expected = format!("its guest still runs (QEMU is process {pid}); launcherctl stop");
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

/// A VM that runs with a claim, its directory and the claim's image.
async fn laptop_with_a_claim() -> (Laptop, PathBuf, PathBuf, StopAll) {
    let laptop = Laptop::of(Vmi::new("laptop").volume(
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
        json!({"name": "data", "disk": {"bus": "virtio"}}),
    ));
    let (home, image) = (laptop.path(""), laptop.path("data.img"));
    let stop = StopAll(home.clone());
    std::fs::write(&image, [7; 512]).unwrap();
    let mut run = launcherctl(&home);
    run.args(run_arguments(&laptop))
        .args(["--detach", "--disk", &format!("data={}", image.display())])
        .env("TMPDIR", &home);
    assert!(output_of(run).await.status.success());
    (laptop, home, image, stop)
}

#[tokio::test]
async fn a_removed_image_or_directory_of_a_running_vm_is_named() {
    let (laptop, home, image, _stop) = laptop_with_a_claim().await;

    let added = laptop.path("added.img");
    std::fs::write(&added, [6; 1 << 20]).unwrap();
    let file = added.to_str().unwrap();
    done(&home, &["addvolume", "added", "--file", file]).await;
    std::fs::remove_file(&added).unwrap();
    let status = done(&home, &["status"]).await;
    assert!(status.contains("of volume added"), "{status}");
    done(&home, &["removevolume", "added"]).await;
    assert_eq!(std::fs::read(&added).unwrap(), [6; 1 << 20]);

    // The VM has no hard link to an image on another file system.
    let volumes = ["far", "away"];
    for volume in volumes {
        let far = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        far.as_file().set_len(1 << 20).unwrap();
        let file = far.path().to_str().unwrap();
        done(&home, &["addvolume", volume, "--file", file]).await;
    }
    let status = done(&home, &["status"]).await;
    for said in [status, refused(&home, &["stop"]).await] {
        let mut named = volumes
            .iter()
            .map(|it| format!("of volume {it}, which is lost"));
        assert!(named.all(|it| said.contains(&it)), "{said}");
    }
    for volume in volumes {
        let remove = ["removevolume", volume, "--force"];
        let error = refused(&home, &remove[..2]).await;
        assert!(error.contains("only QEMU has /dev/shm/"), "{error}");
        done(&home, &remove).await;
    }

    std::fs::remove_file(&image).unwrap();
    let expected = format!(
        "the VM has the last link to {} of volume data",
        image.display()
    );
    let status = done(&home, &["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&status).unwrap();
    // A busy machine may have more problems.
    let mut problems = status["problems"].as_array().unwrap().iter();
    let problem = problems.find(|it| it["cause"].as_str().unwrap().starts_with(&expected));
    let problem = problem.unwrap_or_else(|| panic!("{status}"));
    // As the next step says.
    let remedy = problem["next"].as_str().unwrap();
    let link: Vec<&str> = remedy
        .split(' ')
        .skip_while(|it| *it != "ln")
        .take(3)
        .collect();
    std::fs::hard_link(link[1], link[2]).unwrap();
    assert_eq!(std::fs::read(&image).unwrap(), [7; 512]);

    let root = directory(&laptop).await;
    let moved = root.with_extension("moved");
    std::fs::rename(&root, &moved).unwrap();
    let cause = format!(
        "{} was removed or moved, and its guest still runs",
        root.display()
    );
    let status = done(&home, &["status"]).await;
    assert!(status.contains(&cause), "{status}");
    std::fs::rename(&moved, &root).unwrap();
    assert_eq!(rows(&laptop).await[0]["state"], "Running");

    // libvirt makes a directory again if it has something to write just then.
    let removed = (0..100).any(|_| std::fs::remove_dir_all(&root).is_ok());
    assert!(removed, "{}", root.display());
    for verb in [["list"].as_slice(), &["status"]] {
        let shown = done(&home, verb).await;
        assert!(shown.contains(&cause), "{shown}");
    }
    assert_eq!(
        done(&home, &["stop"]).await,
        "laptop: is forced off, without its supervisor"
    );
    nothing_runs(&laptop).await;
    assert!(image.exists() && rows(&laptop).await.is_empty());
}

#[tokio::test]
async fn a_guest_that_ends_itself_with_an_image_leaves_word_of_it() {
    let (laptop, home, _stop) = laptop();
    start_detached(&laptop).await;
    let far = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    far.as_file().set_len(1 << 20).unwrap();
    let file = far.path().to_str().unwrap();
    done(&home, &["addvolume", "far", "--file", file]).await;
    std::fs::remove_file(&far).unwrap();
    let console = typing_console(&home, "poweroff -f\n");
    console.wait_with_output().unwrap();
    rows_until(&laptop, |rows| rows[0]["state"] == "Failed").await;
    let status = done(&home, &["status"]).await;
    let expected = format!("its guest has ended; {file} of volume far was removed");
    assert!(status.contains(&expected), "{status}");
    let removed = "laptop: had failed; its logs are removed";
    assert_eq!(done(&home, &["stop"]).await, removed);
}

#[tokio::test]
async fn a_replaced_image_is_there_when_the_vm_has_ended() {
    let (laptop, home, image, _stop) = laptop_with_a_claim().await;
    let other = laptop.path("other.img");
    std::fs::write(&other, [8; 512]).unwrap();
    std::fs::rename(&other, &image).unwrap();
    let replaced = format!("uses the file that was {} before", image.display());
    let status = done(&home, &["status"]).await;
    assert!(status.contains(&replaced), "{status}");
    let root = directory(&laptop).await;
    done(&home, &["shutdown"]).await;
    assert!(!root.exists());
    assert_eq!(std::fs::read(&image).unwrap(), [8; 512]);
    let of_guest = laptop.path("data.img.guest");
    assert_eq!(std::fs::read(of_guest).unwrap(), [7; 512]);
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
