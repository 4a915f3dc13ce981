//! Guests that are busy when a disk is plugged or unplugged.

use crate::harness::{Pod, UP, in_pod};

#[test]
fn a_disk_that_is_plugged_during_a_reboot_is_there_after_the_boot() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = Pod::booted("rebooting", &[]).await;
        let mut with = vmi.clone();
        for bus in ["scsi", "virtio"] {
            pod.hotplug_image(&format!("data-{bus}"), 1 << 20);
            with = with.hotplugged(&format!("data-{bus}"), &format!("SN-{bus}"), bus);
        }
        pod.handler.agent().await;
        pod.soft_reboot(&vmi).await;
        pod.sync_ok(&with).await;
        guest.until(UP).await;
        let disks = guest
            .run_until("disks", |disks| {
                disks.contains("SN-scsi") && disks.contains("SN-virtio")
            })
            .await;
        assert_eq!(disks.matches("SN-").count(), 2, "{disks}");
    });
}

#[tokio::test]
// D-disk-16 (docs/differences.md).
async fn an_unplug_that_the_guest_does_not_answer_is_carried_through_by_later_syncs() {
    let (mut pod, vmi, mut guest) = Pod::booted("stopped", &[]).await;
    pod.hotplug_image("data", 1 << 20);
    let with = vmi.clone().hotplugged("data", "DATA", "virtio");
    pod.sync_ok(&with).await;
    guest
        .run_until("disks", |disks| disks.contains("DATA"))
        .await;

    // Its vCPUs are stopped.
    pod.pause(&vmi).await;
    pod.sync_ok(&vmi).await;
    assert!(
        pod.domain().await.to_string().contains("DATA"),
        "the guest still has it"
    );
    pod.sync_ok(&vmi).await;
    pod.log_has("The guest has not released the device yet")
        .await;

    // The launcher that asked for the unplug is gone; the definition has lost the disk, the guest
    // has not.
    pod.kill_launcher().await;
    pod.launch(&vmi, &[]);
    pod.wait_until_ready().await;
    pod.sync_ok(&vmi).await;
    pod.log_count("Detaching disk", 3).await;
    pod.unpause(&vmi).await;
    guest
        .run_until("disks", |disks| !disks.contains("DATA"))
        .await;
    pod.domain_until("without the disk", |domain| {
        !domain.to_string().contains("DATA")
    })
    .await;
    pod.sync_ok(&vmi).await;
    // And the name is free again.
    pod.sync_ok(&with).await;
    guest
        .run_until("disks", |disks| disks.contains("DATA"))
        .await;
}

/// As a launcher that is killed in the middle of an unplug may leave it.
#[test]
// D-disk-17 (docs/differences.md).
fn a_disk_that_only_one_of_guest_and_definition_has_is_put_right() {
    in_pod(async {
        let (pod, vmi, mut guest) = Pod::booted("halves", &["--libvirt=auto"]).await;
        pod.hotplug_image("data", 1 << 20);
        let with = vmi.clone().hotplugged("data", "DATA", "scsi");

        pod.sync_ok(&with).await;
        guest
            .run_until("disks", |disks| disks.contains("DATA"))
            .await;
        pod.virsh(&["detach-disk", "default_halves", "sda", "--config"]);
        pod.sync_ok(&vmi).await;
        guest
            .run_until("disks", |disks| !disks.contains("DATA"))
            .await;

        pod.sync_ok(&with).await;
        guest
            .run_until("disks", |disks| disks.contains("DATA"))
            .await;
        pod.virsh(&["detach-disk", "default_halves", "sda", "--live"]);
        guest
            .run_until("disks", |disks| !disks.contains("DATA"))
            .await;
        pod.sync_ok(&with).await;
        guest
            .run_until("disks", |disks| disks.contains("DATA"))
            .await;
    });
}

/// As management software in the pod may ask for; QEMU reports a change at most once a second.
#[test]
fn a_balloon_that_moves_all_the_time_is_reported() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::booted("balloon", &[]).await;
        let has_memory = |domain: &serde_json::Value, kib: u64| {
            domain["Spec"]["CurrentMemory"]["Value"].as_u64() == Some(kib)
        };
        for change in 0..40 {
            let kib = if change % 2 == 0 { "120000" } else { "160000" };
            pod.virsh(&["setmem", "default_balloon", kib, "--live"]);
            if change % 10 == 0 {
                pod.sync_ok(&vmi).await;
            }
        }
        let reported = |event: &crate::harness::Event| has_memory(&event.domain, 160_000);
        pod.handler.event("with the balloon's size", reported).await;
        // The event may be of an earlier change.
        pod.domain_until("with the balloon's size", |domain| {
            has_memory(domain, 160_000)
        })
        .await;
    });
}
