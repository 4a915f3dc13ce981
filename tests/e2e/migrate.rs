//! `launcherctl migrate`: a VM of `run` moves to a new launcher.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Guest, Vmi, until};
use crate::launcherctl::{Laptop, Running as RunningVm, done, refused, says, verb};

/// Whether it has succeeded and what it has said on standard error, once it has ended by itself.
async fn ended(mut running: RunningVm) -> (bool, String) {
    let mut stderr = running.0.stderr.take().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        (running.0.wait().unwrap().success(), text)
    })
    .await
    .unwrap()
}

/// Where the VM of this name has its files now.
fn place(home: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_link(home.join("launcherctl").join(name)).ok()
}

/// Sends the VMI with volumes that only a start could give the guest. The volumes have
/// no image, and must not hinder a migration.
async fn sync_what_needs_a_restart(home: &Path, vmi: &Vmi) {
    let mut vmi = vmi.value().clone();
    for (name, source) in [
        (
            "late-claim",
            json!({"persistentVolumeClaim": {"claimName": "late"}}),
        ),
        ("late-image", json!({"containerDisk": {"image": "late"}})),
        ("late-scratch", json!({"emptyDisk": {"capacity": "8Mi"}})),
    ] {
        let mut volume = source;
        volume["name"] = name.into();
        let list = |pointer| vmi.pointer(pointer).unwrap().as_array().unwrap().clone();
        let (mut volumes, mut disks) = (list("/spec/volumes"), list("/spec/domain/devices/disks"));
        volumes.push(volume);
        disks.push(json!({"name": name, "disk": {"bus": "virtio"}}));
        vmi["spec"]["volumes"] = volumes.into();
        vmi["spec"]["domain"]["devices"]["disks"] = disks.into();
    }
    let file = home.join("later.json");
    std::fs::write(&file, vmi.to_string()).unwrap();
    let synced = verb(home, &["sync", file.to_str().unwrap()]).await;
    let text = String::from_utf8_lossy(&synced.stdout);
    let error = String::from_utf8_lossy(&synced.stderr);
    for name in ["late-claim", "late-image", "late-scratch"] {
        let expected = format!("needs a restart: spec.volumes[{name}]: ");
        assert!(text.contains(&expected), "{text}{error}");
    }
    let text = done(home, &["volumes", "-o", "json"]).await;
    assert!(!text.contains("late-"), "{text}");
}

#[tokio::test]
async fn a_vm_of_run_moves_to_a_launcher_that_migrate_starts() {
    // Disks of each kind: a claim, an empty one, a generated one.
    let vmi = Vmi::new("mover")
        .volume(
            json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}),
            json!({"name": "seed", "disk": {"bus": "virtio"}}),
        )
        .volume(
            json!({"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}),
            json!({"name": "scratch", "disk": {"bus": "virtio"}}),
        )
        .volume(
            json!({"name": "tls", "secret": {"secretName": "tls"}}),
            json!({"name": "tls", "disk": {"bus": "virtio"}}),
        )
        // The source has the ports until it ends, so the target needs others.
        .set("/spec/networks", json!([{"name": "default", "pod": {}}]))
        .set(
            "/spec/domain/devices/interfaces",
            json!([{"name": "default", "masquerade": {}}]),
        );
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "stringData": {"key": "abc"},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [vmi.value(), secret]});
    let laptop = Laptop::of(vmi.clone()).with_linux();
    let home = &laptop.path("");
    std::fs::write(laptop.path("vmi.json"), list.to_string()).unwrap();
    let mut command = crate::launcherctl::launcherctl(home);
    command
        .args(["run", "--emulate", "--disk", &laptop.root_disk()])
        .arg(laptop.path("vmi.json"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let first = RunningVm(command.spawn().unwrap());
    until("run has made a directory", || {
        place(home, "mover").is_some()
    })
    .await;
    let console = format!("var/run/kubevirt-private/{}/virt-serial0", vmi.uid());
    let before = place(home, "mover").unwrap();
    let mut guest = Guest::connect(&before.join(console)).await;
    guest.until(crate::harness::UP).await;
    guest.until("guest# ").await;
    guest
        .run("mark=kept; echo written | dd of=/dev/vdc conv=fsync 2>/dev/null")
        .await;
    let read = "echo 3 >/proc/sys/vm/drop_caches; md5sum </dev/vdb; md5sum </dev/vdc";
    let content = guest.run(read).await;
    drop(guest);
    sync_what_needs_a_restart(home, &vmi).await;

    // The second time from a daemon to another one. Without a terminal the first one does not stay
    // either.
    let mut place_now = before;
    let mut texts = Vec::new();
    let mut ports = std::collections::BTreeSet::new();
    for _ in 0..2 {
        // So that it lasts longer than the time between two samples.
        let slowed = ["migrate", "--name", "mover", "--bandwidth", "32Mi"];
        let moved = verb(home, &slowed).await;
        let text = String::from_utf8_lossy(&moved.stderr).into_owned();
        assert!(moved.status.success(), "{text}");
        texts.push(text);
        until("it has moved", || {
            place(home, "mover").is_some_and(|now| now != place_now)
        })
        .await;
        place_now = place(home, "mover").unwrap();
        let status = done(home, &["status", "mover", "-o", "json"]).await;
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["state"], "Running", "{status}");
        let port = status["ports"][0]["host"].as_u64().unwrap();
        assert!(ports.insert(port), "{port} is that of the source");
        let port = u16::try_from(port).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).expect("leads to the guest");
    }
    let plan = done(home, &["plan"]).await;
    assert!(plan.contains("spec.volumes[late-claim]"), "{plan}");
    let (success, text) = ended(first).await;
    assert!(success, "{text}");
    assert!(
        text.contains("the VM has migrated to another launcher"),
        "{text}"
    );
    for text in texts {
        let ready = text.find("launcher of the target is ready").unwrap();
        assert!(ready < text.find("migration begins").unwrap(), "{text}");
        assert!(text.contains("mover runs on"), "{text}");
    }
    let end = std::time::Instant::now() + crate::harness::TEST_TIMEOUT;
    loop {
        let asked = verb(home, &["guest", "exec", "--", "sh", "-c", read]).await;
        if asked.status.success() {
            let text = String::from_utf8(asked.stdout).unwrap();
            assert_eq!(text.trim(), content);
            break;
        }
        let message = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(
            std::time::Instant::now() < end,
            "the guest does not answer: {message}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    says(home, &["status"], "mover: Running").await;
    // A migration that is cancelled leaves the guest where it is.
    let slow = ["migrate", "mover", "--bandwidth", "1Mi", "--timeout", "2"];
    let error = refused(home, &slow).await;
    for part in ["the guest runs on in", "--timeout"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(place(home, "mover").unwrap(), place_now);
    let text = done(home, &["volumes", "mover"]).await;
    assert!(text.contains("scratch"), "{text}");
    done(home, &["stop", "mover"]).await;
    assert!(place(home, "mover").is_none() && !place_now.exists());
}
