//! A VMI goes in as JSON, a guest comes up.

use serde_json::json;

use crate::harness::{Pod, Vmi, run};

#[test]
fn a_guest_boots_and_every_side_agrees() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("boot").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        assert!(pod.domain().await.is_null(), "no domain before the first sync");

        let mut guest = pod.boot(&vmi).await;
        let added = pod.handler.event("ADDED", |event| event.kind == "ADDED").await;
        assert_eq!(added.domain["ObjectMeta"]["name"], "boot");
        assert_eq!(added.domain["ObjectMeta"]["uid"], vmi.uid());
        let running = pod.domain().await;
        assert_eq!(running["Status"]["Status"], "Running");
        assert_eq!(running["Spec"]["Name"], "default_boot");
        assert_eq!(running["Spec"]["Metadata"]["KubeVirt"]["UID"], vmi.uid());
        assert_eq!(running["Spec"]["Devices"]["Disks"][0]["Alias"]["Name"], "rootdisk");
        assert_eq!(running["Spec"]["Devices"]["Disks"][0]["Target"]["Device"], "vda");

        assert!(guest.run("machine").await.contains("6e0f0f6c-95b1-4b7d-8a46-6e2a6e"), "the firmware's uuid reaches the guest");
        assert!(guest.run("disks").await.contains("vda"));
        let connected = |event: &crate::harness::Event| event.domain.to_string().contains(r#""State":"connected""#);
        pod.handler.event("with a connected agent", connected).await;
    });
}

#[test]
fn ten_equal_syncs_change_nothing_and_concurrent_ones_are_safe() {
    run(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("equal").with_image(&pod);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;

        // Several at once, the first of which starts the domain.
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
            tasks.spawn(async move { cmd.sync_virtual_machine(request).await.unwrap().into_inner() });
        }
        while let Some(answer) = tasks.join_next().await {
            let answer = answer.unwrap();
            assert!(answer.success, "{}", answer.message);
        }
        let before = pod.domain().await;
        let qemu = pod.guests();
        assert_eq!(qemu.len(), 1, "one QEMU");
        for _ in 0..10 {
            pod.sync_ok(&vmi).await;
        }
        assert_eq!(pod.domain().await["Spec"], before["Spec"]);
        assert_eq!(pod.guests(), qemu);
    });
}

#[test]
fn every_kind_of_volume_of_a_linux_server_reaches_the_guest() {
    run(async {
        let mut pod = Pod::new();
        let cloud_init = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n# made for the test\n", "networkData": "version: 2\n"}});
        let vmi = Vmi::new("volumes")
            .with_image(&pod)
            .volume(
                json!({"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}),
                json!({"name": "scratch", "serial": "ScratchABC", "disk": {"bus": "virtio"}}),
            )
            .volume(
                json!({"name": "image", "containerDisk": {"image": "example/image"}}),
                json!({"name": "image", "disk": {"bus": "scsi"}}),
            )
            .volume(cloud_init, json!({"name": "seed", "cdrom": {"bus": "sata"}}));
        // What virt-handler would mount from the container disk's image.
        let image = pod.path("/var/run/kubevirt/container-disks/disk_2.img");
        std::fs::write(&image, vec![0x5a; 4 << 20]).unwrap();
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;

        let disks = guest.run("disks").await;
        assert!(disks.lines().any(|disk| disk.contains("8388608") && disk.contains("ScratchABC")), "{disks}");
        assert!(disks.lines().any(|disk| disk.starts_with("sd") && disk.contains("4194304")), "{disks}");
        assert!(guest.run("seed user-data").await.contains("# made for the test"));
        assert!(guest.run("seed network-config").await.contains("version: 2"));
        assert!(guest.run("seed meta-data").await.contains("instance-id"));

        // The guest writes to the container disk; its image stays as it was.
        let disk = disks.lines().find(|disk| disk.contains("4194304")).unwrap().split_whitespace().next().unwrap().to_owned();
        guest.run(&format!("dd if=/dev/zero of=/dev/{disk} bs=1M count=1 conv=fsync 2>/dev/null")).await;
        assert_eq!(guest.run(&format!("dd if=/dev/{disk} bs=1 count=1 2>/dev/null | od -An -tx1")).await, "00");
        assert!(std::fs::read(&image).unwrap().iter().all(|&byte| byte == 0x5a), "the image of a container disk is never written");
    });
}

#[test]
fn an_efi_guest_boots() {
    run(async {
        let mut pod = Pod::new();
        let bootloader = json!({"efi": {"secureBoot": false}});
        // GRUB runs out of memory in less.
        let vmi = Vmi::new("efi")
            .with_image(&pod)
            .set("/spec/domain/memory/guest", json!("512Mi"))
            .set("/spec/domain/firmware/bootloader", bootloader);
        pod.handler.serve();
        pod.launch(&vmi, &[]);
        pod.wait_until_ready().await;
        let mut guest = pod.boot(&vmi).await;
        assert_eq!(guest.run("test -d /sys/firmware/efi && echo yes").await, "yes");
    });
}
