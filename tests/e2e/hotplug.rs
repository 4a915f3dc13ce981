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

/// Again as root: QEMU's user differs from the launcher's, and libvirt gives it the image that is
/// plugged.
#[test]
fn a_hotplugged_disk_keeps_its_serial_in_a_pod_of_roots() {
    in_container(User::Root, plugs_and_unplugs());
}

/// The names of all disks but the root disk.
async fn plugged(pod: &Pod) -> Vec<String> {
    let domain = pod.domain().await;
    let disks = domain["Spec"]["Devices"]["Disks"].as_array().unwrap();
    let names = disks.iter().map(|disk| &disk["Alias"]["Name"]);
    names
        .filter(|name| *name != "rootdisk")
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
// D-disk-10 (docs/differences.md).
async fn disks_are_plugged_when_ready_and_one_failure_does_not_stop_the_others() {
    let (pod, vmi) = Pod::started("disks", &[]).await;
    let with = |names: &[&str]| {
        let vmis = names.iter();
        vmis.fold(vmi.clone(), |vmi, name| vmi.hotplugged(name, name, "scsi"))
    };
    let good = pod.hotplug_image("good", 1 << 20);
    pod.sync_ok(&with(&["late", "good"])).await;
    assert_eq!(
        plugged(&pod).await,
        ["good"],
        "a disk whose image is not there yet is left for the next sync"
    );
    pod.hotplug_image("late", 1 << 20);
    for _ in 0..2 {
        pod.sync_ok(&with(&["late", "good"])).await;
        assert_eq!(plugged(&pod).await.len(), 2);
    }

    // QEMU keeps an image from being written to by two disks: that one fails, the other comes.
    std::fs::hard_link(&good, good.with_file_name("twin.img")).unwrap();
    pod.hotplug_image("third", 1 << 20);
    let answer = pod.sync(&with(&["late", "good", "twin", "third"])).await;
    let error = answer.message;
    assert!(!answer.success && error.contains("lock"), "{error}");
    assert!(
        error.starts_with("disk \"twin\" (sdc): attach: LibvirtError(Code=")
            && !error.contains("third"),
        "{error}"
    );
    assert!(plugged(&pod).await.contains(&"third".to_owned()));
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

/// libvirt detaches no disk that a block job works on.
#[tokio::test]
async fn a_disk_that_cannot_be_detached_stays_in_the_definition() {
    let (pod, vmi) = Pod::started("busydisk", &["--libvirt=auto"]).await;
    for name in ["old", "new"] {
        pod.hotplug_image(name, 1 << 20);
    }
    pod.sync_ok(&vmi.clone().hotplugged("old", "old", "scsi"))
        .await;
    let definition = || pod.virsh(&["dumpxml", "default_busydisk", "--inactive"]);
    let copy = pod.path("/var/run/copy.img");
    let copy = copy.to_str().unwrap();
    let copy = [
        "blockcopy",
        "default_busydisk",
        "sda",
        copy,
        "--transient-job",
    ];
    pod.virsh(&copy);
    let answer = pod.sync(&vmi.hotplugged("new", "new", "scsi")).await;
    let error = answer.message;
    assert!(error.starts_with("disk \"old\" (sda): detach: "), "{error}");
    assert!(definition().contains("/old.img"));
}
