//! Claims that grow while the guest runs.

use serde_json::{Value, json};

use crate::harness::{Guest, LoopDevice, Pod, Vmi, in_pod};

const MIB: u64 = 1 << 20;

/// The VMI with a claim's size in its status, as virt-controller sets it.
trait Claims {
    fn claim(self, name: &str, size: &str) -> Self;
}

impl Claims for Vmi {
    fn claim(self, name: &str, size: &str) -> Self {
        let statuses = self.value()["status"]["volumeStatus"].as_array().unwrap();
        let at = statuses
            .iter()
            .position(|status| status["name"] == name)
            .unwrap();
        let claim = json!({"capacity": {"storage": size}, "requests": {"storage": size}, "filesystemOverhead": "0"});
        self.set(
            &format!("/status/volumeStatus/{at}/persistentVolumeClaimInfo"),
            claim,
        )
    }
}

fn volume(name: &str) -> (Value, Value) {
    (
        json!({"name": name, "persistentVolumeClaim": {"claimName": name}}),
        json!({"name": name, "serial": name, "disk": {"bus": "virtio"}}),
    )
}

fn image(pod: &Pod, path: &str, size: u64) {
    std::fs::File::create(pod.path(path))
        .unwrap()
        .set_len(size)
        .unwrap();
}

async fn sees(guest: &mut Guest, serial: &str, size: u64) {
    let disk = |disks: &str| {
        disks
            .lines()
            .any(|disk| disk.contains(&format!(" {size} {serial} ")))
    };
    guest.run_until("disks", disk).await;
}

#[test]
fn a_running_guest_sees_files_devices_and_hotplugged_images_grow_and_never_shrink() {
    in_pod(async {
        let mut pod = Pod::new();
        let claims = "/var/run/kubevirt-private/vmi-disks";
        for (name, size) in [("data", 16 * MIB), ("fixed", 8 * MIB)] {
            image(&pod, &format!("{claims}/{name}/disk.img"), size);
        }
        let device = LoopDevice::at(&pod.path("/dev/device"), 16 * MIB);
        let mut vmi = Vmi::new("growth").with_image(&pod);
        for name in ["data", "fixed", "device"] {
            if name != "device" || device.is_some() {
                let (volume, disk) = volume(name);
                vmi = vmi.volume(volume, disk);
            }
        }
        let of_size = |size: &str| {
            let vmi = vmi.clone().claim("data", size);
            if device.is_some() {
                vmi.claim("device", size)
            } else {
                vmi
            }
        };
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&of_size("16Mi")).await;
        sees(&mut guest, "data", 16 * MIB).await;

        if let Some(device) = &device {
            device.grow(48 * MIB);
        }
        pod.sync_ok(&of_size("40Mi")).await;
        sees(&mut guest, "data", 40 * MIB).await;
        if device.is_some() {
            sees(&mut guest, "device", 48 * MIB).await;
        }
        // The new end is there to be written.
        guest
            .run("dd if=/dev/zero of=/dev/vdb bs=1M seek=39 count=1 conv=fsync 2>/dev/null")
            .await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Running");

        // A smaller claim takes nothing away; a volume whose status has no claim is left alone.
        pod.sync_ok(&of_size("8Mi")).await;
        for (serial, size) in [("data", 40 * MIB), ("fixed", 8 * MIB)] {
            sees(&mut guest, serial, size).await;
        }

        pod.hotplug_image("late", 4 * MIB);
        let with = vmi.clone().hotplugged("late", "late", "scsi");
        for (claim, size) in [("12Mi", 12 * MIB), ("20Mi", 20 * MIB)] {
            pod.sync_ok(&with.clone().claim("late", claim)).await;
            sees(&mut guest, "late", size).await;
        }
    });
}
