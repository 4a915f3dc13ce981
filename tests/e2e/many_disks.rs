//! Many disks at once, and one disk many times.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Pod, TEST_TIMEOUT, Usage, Vmi, in_pod};

/// Syncs until the launcher has finished: what takes longer than virt-handler waits goes on, and
/// the next sync joins it.
pub async fn sync_through(pod: &Pod, vmi: &Vmi) {
    loop {
        let answer = pod.sync(vmi).await;
        if answer.success {
            return;
        }
        assert!(
            answer.message.contains("it continues"),
            "{}",
            answer.message
        );
    }
}

/// How many block nodes QEMU has.
fn block_nodes(pod: &Pod) -> usize {
    let command = r#"{"execute": "query-named-block-nodes", "arguments": {"flat": true}}"#;
    let answer: Value =
        serde_json::from_str(&pod.virsh(&["qemu-monitor-command", "default_cycles", command]))
            .unwrap();
    answer["return"].as_array().unwrap().len()
}

/// Waits until launcher and QEMU have no more descriptors, threads and memory than before. A leak
/// would not go away; what is used by the work that is just being ended does.
async fn uses_no_more_than(pod: &Pod, before: Usage) {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let now = pod.usage();
        let few_descriptors = now.descriptors <= before.descriptors + 2
            && now.qemu_descriptors <= before.qemu_descriptors + 2;
        // Of the bounded pool there may be any number: twelve, and those that are always there.
        let few_threads = now.threads <= 16;
        let little_memory = now.resident_kib <= before.resident_kib + 8 * 1024;
        if few_descriptors && few_threads && little_memory {
            return;
        }
        assert!(Instant::now() < end, "a leak: {before:?}, then {now:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn targets(domain: &Value) -> Vec<&str> {
    let disks = domain["Spec"]["Devices"]["Disks"].as_array().unwrap();
    disks
        .iter()
        .map(|disk| disk["Target"]["Device"].as_str().unwrap())
        .collect()
}

#[test]
fn seventy_five_disks_are_plugged_by_one_sync_and_unplugged_by_one() {
    const COUNT: usize = 75;
    in_pod(async {
        let (mut pod, vmi, mut guest) = Pod::booted("many", &[]).await;
        let mut with = vmi.clone();
        for number in 0..COUNT {
            pod.hotplug_image(&format!("data{number}"), 1 << 20);
            with = with.hotplugged(&format!("data{number}"), &format!("SN{number:03}"), "scsi");
        }
        sync_through(&pod, &with).await;
        let domain = pod.domain().await;
        let mut there = targets(&domain);
        assert_eq!(there.len(), 1 + COUNT);
        there.sort_unstable();
        there.dedup();
        assert_eq!(there.len(), 1 + COUNT, "each has a name of its own");
        let serials = |disks: &str| disks.lines().filter(|disk| disk.contains(" SN")).count();
        let seen = guest
            .run_until("disks", |disks| serials(disks) == COUNT)
            .await;
        for number in 0..COUNT {
            assert_eq!(
                seen.matches(&format!("SN{number:03} ")).count(),
                1,
                "{number}: {seen}"
            );
        }
        sync_through(&pod, &with).await;
        assert_eq!(
            pod.domain().await["Spec"]["Devices"]["Disks"],
            domain["Spec"]["Devices"]["Disks"],
            "nothing more to do"
        );

        sync_through(&pod, &vmi).await;
        guest.run_until("disks", |disks| serials(disks) == 0).await;
        let only_root = |event: &crate::harness::Event| {
            !event.domain["Spec"].is_null() && targets(&event.domain) == ["vda"]
        };
        pod.handler.forget();
        pod.sync_ok(&vmi).await;
        if targets(&pod.domain().await) != ["vda"] {
            pod.handler
                .event("with the root disk alone", only_root)
                .await;
        }
    });
}

#[tokio::test]
async fn one_disk_is_plugged_and_unplugged_a_hundred_times_without_a_leak() {
    const CYCLES: usize = 100;
    let (pod, vmi, mut guest) = Pod::booted("cycles", &["--libvirt=auto"]).await;
    pod.hotplug_image("data", 64 << 10);
    let with = vmi.clone().hotplugged("data", "DATA", "scsi");
    // The guest reads it whenever it is there, and may be in the middle of a read when it goes.
    guest.run("while :; do cat /dev/sd? >/dev/null 2>&1 && echo r >>/run/reads; usleep 10000; done & true").await;
    let mut before = None;
    for cycle in 0..CYCLES {
        let checked = cycle % 20 == 0;
        if checked {
            // Linux handles the events of virtio-scsi in parallel. A guest that is many of them
            // behind may take the last removal for one after the last plug, and lose the disk.
            guest
                .run_until("ls /dev/sd?; rm -f /run/reads", |disks| {
                    !disks.contains("/dev/sda")
                })
                .await;
        }
        sync_through(&pod, &with).await;
        assert_eq!(
            targets(&pod.domain().await),
            ["vda", "sda"],
            "cycle {cycle}"
        );
        if checked {
            guest
                .run_until("wc -l </run/reads; rm -f /run/reads", |reads| {
                    reads.trim().parse::<u32>().is_ok_and(|reads| reads > 0)
                })
                .await;
        }
        sync_through(&pod, &vmi).await;
        // On a busy machine a guest may take longer than libvirt waits for it.
        pod.domain_until("without the disk", |domain| targets(domain) == ["vda"])
            .await;
        // The first ones fill caches and pools.
        if cycle == CYCLES / 10 {
            before = Some((pod.usage(), block_nodes(&pod)));
        }
    }
    let (before, nodes) = before.unwrap();
    uses_no_more_than(&pod, before).await;
    assert_eq!(block_nodes(&pod), nodes);
    guest
        .run_until("disks", |disks| !disks.contains("DATA"))
        .await;
}
