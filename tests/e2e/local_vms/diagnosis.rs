//! `launcherctl status` says what is wrong with a VM: with states that are real. The rules are
//! tested with the client.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{StopAll, directory, rows_until};
use crate::full_disk::SmallFs;
use crate::harness::{Guest, UP, Vmi};
use crate::launcherctl::{Laptop, done, launcherctl, refuses};

/// One request at a time: QEMU tells of a second that fails up to 1 s later, and for libvirt the
/// guest is paused again then, though it may have been resumed meanwhile.
const WRITE: &str = "disk=$(disks | grep DATA | cut -d' ' -f1); dd if=/dev/zero of=/dev/$disk bs=64k count=128 oflag=direct 2>/dev/null & echo it is writ''ing";

#[tokio::test]
async fn status_says_what_is_wrong_and_what_to_do_next() {
    let vmi = Vmi::new("laptop")
        .set("/spec/terminationGracePeriodSeconds", json!(120))
        .volume(
            json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
            json!({"name": "data", "serial": "DATA", "disk": {"bus": "virtio"}}),
        );
    let laptop = Laptop::of(vmi).with_linux();
    let home = laptop.path("");
    let Some(small) = SmallFs::at(laptop.path("small"), 4) else {
        return;
    };
    let image = small.path().join("data.img");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(16 << 20).unwrap();
    let _stop = StopAll(home.clone());
    let data = format!("data={}", image.display());
    let (root_disk, manifest) = (laptop.root_disk(), laptop.path("vmi.json"));
    let manifest = manifest.to_str().unwrap();
    let run = ["run", "--emulate", "--detach", "--until", UP, manifest];
    done(
        &home,
        &[&run[..], &["--disk", &root_disk, "--disk", &data]].concat(),
    )
    .await;
    let mut guest = Guest::connect(&directory(&laptop).await.join("console.sock")).await;
    guest.until(UP).await;

    guest.send(WRITE).await;
    rows_until(&laptop, |rows| rows[0]["state"] == "Paused").await;
    a_full_disk(&home, &image).await;
    small.grow(24);
    assert_eq!(done(&home, &["unpause"]).await, "resumed default/laptop");
    rows_until(&laptop, |rows| rows[0]["state"] == "Running").await;

    guest.until("it is writing").await;
    guest.run("touch /run/ignore-power").await;
    a_guest_that_ignores_the_power_button(&laptop, &home).await;
}

async fn a_full_disk(home: &Path, image: &Path) {
    let status = done(home, &["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&status).unwrap();
    let problem = &status["problems"][0];
    assert_eq!(problem["what"], "the guest is paused");
    let cause = problem["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("no space is left for disk data (vd"),
        "{cause}"
    );
    assert!(
        problem["since"].as_str().unwrap().ends_with('Z'),
        "{problem}"
    );
    let next = problem["next"].as_str().unwrap();
    assert!(next.ends_with("launcherctl unpause laptop"), "{next}");
    assert!(image.exists());
    refuses(home, &["migrate"], "paused by an error of a disk").await;
}

async fn a_guest_that_ignores_the_power_button(laptop: &Laptop, home: &Path) {
    let mut stop = launcherctl(home)
        .arg("stop")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    rows_until(laptop, |rows| rows[0]["state"] == "stopping").await;
    assert_eq!(done(home, &["stop", "--force"]).await, "laptop: has ended");
    stop.wait().unwrap();
}
