//! Changed block tracking: the guest writes through an overlay, its data goes to the raw volume.

use serde_json::{Value, json};

use crate::harness::{Guest, LoopDevice, Pod, Vmi, in_pod};

const MIB: u64 = 1 << 20;

/// Where the overlay of a volume is in the pod.
fn overlay(pod: &Pod, volume: &str) -> String {
    let directory = if pod.is_container() {
        "/var/run/kubevirt-private/libvirt/qemu/cbt"
    } else {
        "/var/lib/libvirt/qemu/cbt"
    };
    format!("{directory}/{volume}.qcow2")
}

fn volume(name: &str) -> (Value, Value) {
    (
        json!({"name": name, "persistentVolumeClaim": {"claimName": name}}),
        json!({"name": name, "serial": name, "disk": {"bus": "virtio"}}),
    )
}

async fn sees(guest: &mut Guest, serial: &str, size: u64) -> String {
    let disk = format!(" {size} {serial} ");
    let disks = guest
        .run_until("disks", |disks| {
            disks.lines().any(|line| line.contains(&disk))
        })
        .await;
    let line = disks.lines().find(|line| line.contains(&disk)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

/// The claim of the volume at this place has this size.
fn claim(vmi: Vmi, at: usize, size: &str) -> Vmi {
    let claim = json!({"capacity": {"storage": size}, "requests": {"storage": size}, "filesystemOverhead": "0"});
    vmi.set(
        &format!("/status/volumeStatus/{at}/persistentVolumeClaimInfo"),
        claim,
    )
}

#[test]
// D-disk-7 (docs/differences.md).
fn a_tracked_guest_writes_raw_volumes_that_grow_and_come_and_go() {
    in_pod(async {
        let mut pod = Pod::new();
        let image = pod.path("/var/run/kubevirt-private/vmi-disks/data/disk.img");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(16 * MIB)
            .unwrap();
        let device = LoopDevice::at(&pod.path("/dev/device"), 16 * MIB);
        let mut vmi = Vmi::new("tracked").with_image(&pod).set(
            "/status/changedBlockTracking",
            json!({"state": "Initializing"}),
        );
        for name in ["data", "device"] {
            if name == "data" || device.is_some() {
                let (volume, disk) = volume(name);
                vmi = vmi.volume(volume, disk);
            }
        }
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        let source = pod.domain().await["Spec"]["Devices"]["Disks"][1]["Source"].clone();
        for (file, pod_path) in [
            (&source["File"], overlay(&pod, "data")),
            (
                &source["DataStore"]["Source"]["File"],
                "/var/run/kubevirt-private/vmi-disks/data/disk.img".into(),
            ),
        ] {
            let file = file.as_str().unwrap_or_default();
            assert!(file.ends_with(&pod_path), "{file} is not {pod_path}");
        }
        let disk = sees(&mut guest, "data", 16 * MIB).await;
        guest
            .run(&format!(
                "yes tracked | head -c 65536 | dd of=/dev/{disk} conv=fsync 2>/dev/null"
            ))
            .await;
        assert!(
            std::fs::read(&image)
                .unwrap()
                .starts_with(b"tracked\ntracked\n"),
            "the volume itself has the data"
        );

        // Both grow, the overlays with what is below them.
        vmi = vmi
            .set("/status/changedBlockTracking/state", json!("Enabled"))
            .set("/status/phase", json!("Running"));
        vmi = claim(vmi, 1, "24Mi");
        if let Some(device) = &device {
            device.grow(40 * MIB);
            vmi = claim(vmi, 2, "40Mi");
        }
        pod.sync_ok(&vmi).await;
        sees(&mut guest, "data", 24 * MIB).await;
        if device.is_some() {
            let disk = sees(&mut guest, "device", 40 * MIB).await;
            guest.run(&format!("yes end | head -c 65536 | dd of=/dev/{disk} bs=64k seek=639 conv=fsync 2>/dev/null")).await;
        }
        if let Some(device) = &device {
            assert!(
                std::fs::read(device.image())
                    .unwrap()
                    .ends_with(b"end\nend\n"),
                "the new end is the device's"
            );
        }

        // A disk that is plugged while the guest runs is tracked from then on; its overlay is
        // removed with it.
        let plugged = pod.hotplug_image("late", 4 * MIB);
        let with = vmi.clone().hotplugged("late", "late", "virtio");
        let at = with.value()["status"]["volumeStatus"]
            .as_array()
            .unwrap()
            .len()
            - 1;
        let with = with.set(
            &format!("/status/volumeStatus/{at}/phase"),
            json!("MountedToPod"),
        );
        pod.sync_ok(&with).await;
        sees(&mut guest, "late", 4 * MIB).await;
        let overlay = pod.inside(&overlay(&pod, "late"));
        assert!(overlay.exists());
        // A guest that does not answer yet still writes through it.
        pod.pause(&vmi).await;
        pod.sync_ok(&vmi).await;
        pod.sync_ok(&vmi).await;
        assert!(overlay.exists());
        pod.unpause(&vmi).await;
        let is_late = r#""Name":"late""#;
        pod.domain_until("without the disk", |domain| {
            !domain.to_string().contains(is_late)
        })
        .await;
        pod.sync_ok(&vmi).await;
        assert!(!overlay.exists() && plugged.exists());
    });
}
