//! Media are inserted into a running guest's CD-ROM drive, swapped and ejected.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Guest, LoopDevice, Pod, UP, Vmi, in_pod};
use crate::launcherctl::{Laptop, Running, done, refused};

/// The drive's place for a medium, and its claim's image or device there.
const IMAGE: &str = "/var/run/kubevirt/hotplug-disks/drive.img";
const DEVICE: &str = "/var/run/kubevirt/hotplug-disks/drive";

/// An ISO image with one file.
fn iso(at: &Path, content: &str) {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), content).unwrap();
    let made = Command::new("xorrisofs")
        .args(["-quiet", "-rock", "-output"])
        .arg(at)
        .arg(tree.path())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// The VMI with an empty drive.
fn with_drive(vmi: &Vmi) -> Vmi {
    pushed(
        vmi,
        "/spec/domain/devices/disks",
        json!({"name": "drive", "cdrom": {"bus": "sata"}}),
    )
}

/// The VMI with a medium in its drive.
fn with_medium(vmi: &Vmi) -> Vmi {
    let vmi = pushed(
        vmi,
        "/spec/volumes",
        json!({"name": "drive", "persistentVolumeClaim": {"claimName": "iso", "hotpluggable": true}}),
    );
    let attach_pod = json!({"attachPodName": "hp", "attachPodUID": "u"});
    pushed(
        &vmi,
        "/status/volumeStatus",
        json!({"name": "drive", "phase": "Ready", "hotplugVolume": attach_pod}),
    )
}

fn pushed(vmi: &Vmi, list: &str, item: Value) -> Vmi {
    let mut items = vmi.value().pointer(list).unwrap().clone();
    items.as_array_mut().unwrap().push(item);
    vmi.clone().set(list, items)
}

/// Mounts the medium until the file on it says so, and lets go of it.
async fn reads(guest: &mut Guest, content: &str) {
    let read = "mount -t iso9660 -o ro /dev/sr0 /mnt 2>/dev/null && cat /mnt/file; umount /mnt 2>/dev/null";
    guest.run_until(read, |output| output == content).await;
}

async fn finds_no_medium(guest: &mut Guest) {
    guest
        .run_until(
            "head -c 1 /dev/sr0 2>&1 | grep -o 'No medium found'",
            |output| output == "No medium found",
        )
        .await;
}

fn drive(domain: &Value) -> &Value {
    let disks = domain["Spec"]["Devices"]["Disks"].as_array().unwrap();
    disks
        .iter()
        .find(|disk| disk["Alias"]["Name"] == "drive")
        .expect("the drive itself stays")
}

#[tokio::test]
// D-disk-4 (docs/differences.md).
async fn a_medium_is_injected_swapped_and_ejected() {
    let mut pod = Pod::new();
    let empty = with_drive(&Vmi::new("cdrom").with_image(&pod));
    let full = with_medium(&empty);
    pod.start(&empty, &[]).await;
    let mut guest = pod.boot(&empty).await;
    finds_no_medium(&mut guest).await;

    iso(&pod.path(IMAGE), "first");
    pod.sync_ok(&full).await;
    reads(&mut guest, "first").await;
    assert!(
        drive(&pod.domain().await)["Source"]["File"]
            .as_str()
            .unwrap()
            .ends_with(IMAGE)
    );

    // Straight from the image to a device.
    let device = LoopDevice::at(&pod.path(DEVICE), 1 << 20);
    if let Some(device) = &device {
        iso(device.image(), "second");
        device.grow(1 << 20);
        pod.sync_ok(&full).await;
        reads(&mut guest, "second").await;
    }

    pod.sync_ok(&empty).await;
    finds_no_medium(&mut guest).await;
    let source = drive(&pod.domain().await)["Source"].clone();
    assert_eq!((&source["File"], &source["Dev"]), (&json!(""), &json!("")));

    // The next claim is mounted at the same place as the first.
    let _ = std::fs::remove_file(pod.path(DEVICE));
    std::fs::remove_file(pod.path(IMAGE)).unwrap();
    iso(&pod.path(IMAGE), "third");
    pod.sync_ok(&full).await;
    reads(&mut guest, "third").await;
    pod.sync_ok(&full).await;
}

#[test]
fn a_medium_that_the_guest_has_mounted_stays_until_it_unmounts() {
    in_pod(async {
        let mut pod = Pod::new();
        let empty = with_drive(&Vmi::new("locked").with_image(&pod));
        let full = with_medium(&empty);
        iso(&pod.path(IMAGE), "in use");
        pod.start(&full, &[]).await;
        let mut guest = pod.boot(&full).await;
        guest
            .run_until(
                "mount -t iso9660 -o ro /dev/sr0 /mnt && cat /mnt/file",
                |output| output.ends_with("in use"),
            )
            .await;

        let answer = pod.sync(&empty).await;
        assert!(
            !answer.success && answer.message.contains(r#"disk "drive""#),
            "{answer:?}"
        );
        assert_eq!(guest.run("cat /mnt/file").await, "in use");
        guest.run("umount /mnt").await;
        pod.sync_ok(&empty).await;
        finds_no_medium(&mut guest).await;
    });
}

#[tokio::test]
async fn launcherctl_puts_media_into_a_drive_and_ejects_them() {
    let vmi = with_drive(&Vmi::new("discs"));
    let laptop = Laptop::of(vmi.clone()).with_linux();
    let home = &laptop.path("");
    let path = |name: &str| home.join(name).display().to_string();
    iso(Path::new(&path("first.iso")), "first");
    iso(Path::new(&path("second.iso")), "second");
    let _running = Running(laptop.run());
    let mut guest = Guest::connect(&laptop.console()).await;
    guest.until(UP).await;
    let is_listed = async |state: &str| {
        let rows: Value =
            serde_json::from_str(&done(home, &["volumes", "-o", "json"]).await).unwrap();
        let rows = rows.as_array().unwrap().clone();
        let found: Vec<&Value> = rows.iter().filter(|row| row["name"] == "drive").collect();
        assert_eq!(found.len(), 1, "{rows:?}");
        assert_eq!(found[0]["state"], state, "{rows:?}");
    };

    is_listed("empty drive").await;
    let error = refused(home, &["removevolume", "drive"]).await;
    assert!(error.contains("is empty; launcherctl addvolume"), "{error}");
    // The VMI wants a medium that is not there yet: the drive stays.
    std::fs::write(path("full.json"), with_medium(&vmi).value().to_string()).unwrap();
    done(home, &["sync", &path("full.json")]).await;
    is_listed("empty drive").await;

    for (image, content) in [("first.iso", "first"), ("second.iso", "second")] {
        let inserted = done(home, &["addvolume", "drive", "--file", &path(image)]).await;
        assert!(
            inserted.starts_with("drive is in its CD-ROM drive ("),
            "{inserted}"
        );
        reads(&mut guest, content).await;
        is_listed("attached").await;
        let error = refused(home, &["addvolume", "drive", "--file", &path(image)]).await;
        assert!(error.contains("launcherctl removevolume drive"), "{error}");
        let ejected = done(home, &["removevolume", "drive"]).await;
        assert_eq!(ejected, "drive is ejected; its CD-ROM drive stays, empty");
        finds_no_medium(&mut guest).await;
        is_listed("empty drive").await;
    }
    assert_eq!(done(home, &["plan"]).await, "nothing to do");

    // The guest keeps the drive that a later file lacks.
    let without = Vmi::new("discs").value().to_string();
    std::fs::write(path("without.json"), without).unwrap();
    let synced = done(home, &["sync", &path("without.json")]).await;
    let kept = "spec.domain.devices.disks[drive]: the guest keeps its devices";
    assert!(synced.contains(kept), "{synced}");
    is_listed("empty drive").await;
    done(home, &["addvolume", "drive", "--file", &path("first.iso")]).await;
    reads(&mut guest, "first").await;
}
