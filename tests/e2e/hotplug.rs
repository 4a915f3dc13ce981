//! Disks are plugged and unplugged while the guest runs.

use serde_json::Value;

use crate::harness::{Pod, User, in_container, in_pod};

fn disk<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    domain["Spec"]["Devices"]["Disks"]
        .as_array()?
        .iter()
        .find(|disk| disk["Alias"]["Name"] == name)
}

#[test]
// D-disk-1 (docs/differences.md).
fn a_hotplugged_disk_keeps_its_serial_and_goes_when_it_is_removed() {
    in_pod(plugs_and_unplugs());
}

/// Again as root: QEMU's user differs from the launcher's, and libvirt gives it the image that is plugged.
#[test]
fn a_hotplugged_disk_keeps_its_serial_in_a_pod_of_roots() {
    in_container(User::Root, plugs_and_unplugs());
}

async fn plugs_and_unplugs() {
    let (mut pod, vmi, mut guest) = Pod::booted("hotplug", &[]).await;

    for bus in ["scsi", "virtio"] {
        let name = format!("data-{bus}");
        pod.hotplug_image(&name, 16 << 20);
        let with = vmi.clone().hotplugged(&name, "SN-CAPital", bus);
        pod.sync_ok(&with).await;
        let domain = pod.domain().await;
        let attached = disk(&domain, &name).expect("attached");
        assert_eq!(attached["Serial"], "SN-CAPital");
        let seen = guest
            .run_until("disks", |disks| disks.contains("SN-CAPital"))
            .await;
        assert!(
            seen.lines()
                .any(|disk| disk.contains("16777216") && disk.contains("SN-CAPital")),
            "{seen}"
        );

        // Again: nothing changes.
        pod.sync_ok(&with).await;
        assert_eq!(
            pod.domain().await["Spec"]["Devices"]["Disks"],
            domain["Spec"]["Devices"]["Disks"]
        );

        pod.sync_ok(&vmi).await;
        guest
            .run_until("disks", |disks| !disks.contains("SN-CAPital"))
            .await;
        pod.handler
            .event("without the disk", |event| {
                !event.domain["Spec"].is_null() && disk(&event.domain, &name).is_none()
            })
            .await;
        assert!(disk(&pod.domain().await, &name).is_none());
    }
}
