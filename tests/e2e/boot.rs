//! A VMI is synced as JSON, and its guest boots.

use domain::DomainSpec;
use domain::controllers::Controller;
use serde_json::json;

use crate::harness::{Pod, Vmi, in_pod};

#[test]
fn a_guest_boots_and_every_side_agrees() {
    in_pod(async {
        let (mut pod, vmi) = Pod::with_image("boot", &[]).await;
        assert!(
            pod.domain().await.is_null(),
            "no domain before the first sync"
        );

        let mut guest = pod.boot(&vmi).await;
        let added = pod
            .handler
            .event("ADDED", |event| event.kind == "ADDED")
            .await;
        assert_eq!(added.domain["ObjectMeta"]["name"], "boot");
        assert_eq!(added.domain["ObjectMeta"]["uid"], vmi.uid());
        let running = pod.domain().await;
        assert_eq!(running["Status"]["Status"], "Running");
        assert_eq!(running["Spec"]["Name"], "default_boot");
        assert_eq!(running["Spec"]["Metadata"]["KubeVirt"]["UID"], vmi.uid());
        assert_eq!(
            running["Spec"]["Devices"]["Disks"][0]["Alias"]["Name"],
            "rootdisk"
        );
        assert_eq!(
            running["Spec"]["Devices"]["Disks"][0]["Target"]["Device"],
            "vda"
        );

        assert!(
            guest
                .run("machine")
                .await
                .contains("6e0f0f6c-95b1-4b7d-8a46-6e2a6e"),
            "the firmware's uuid reaches the guest"
        );
        assert!(guest.run("disks").await.contains("vda"));
        pod.handler.agent().await;
    });
}

#[tokio::test]
async fn ten_equal_syncs_change_nothing_and_concurrent_ones_are_safe() {
    let (pod, vmi) = Pod::with_image("equal", &[]).await;

    // Several at once, the first of which starts the domain.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
        tasks.spawn(async move {
            cmd.sync_virtual_machine(request)
                .await
                .unwrap()
                .into_inner()
        });
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
}

#[test]
fn an_efi_guest_boots() {
    in_pod(async {
        let mut pod = Pod::new();
        let bootloader = json!({"efi": {"secureBoot": false}});
        // GRUB runs out of memory in less.
        let vmi = Vmi::new("efi")
            .with_image(&pod)
            .set("/spec/domain/memory/guest", json!("512Mi"))
            .set("/spec/domain/firmware/bootloader", bootloader);
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        assert_eq!(
            guest.run("test -d /sys/firmware/efi && echo yes").await,
            "yes"
        );
    });
}

#[tokio::test]
// D-conv-5 (docs/differences.md).
async fn a_guest_starts_paused_with_free_ports_where_an_earlier_start_left_a_definition() {
    let (pod, vmi) = Pod::with_image("leftover", &["--libvirt=auto"]).await;
    let definition = pod.path("/definition.xml");
    let xml = "<domain type='qemu'><name>default_leftover</name><memory unit='MiB'>32</memory>\
               <os><type>hvm</type></os></domain>";
    std::fs::write(&definition, xml).unwrap();
    pod.virsh(&["define", definition.to_str().unwrap()]);
    assert!(
        pod.domain().await.is_null(),
        "virt-handler would take it for dead"
    );

    let interfaces = json!({"kubevirt.io/pci-interface-slot-count": "3"});
    let vmi = vmi
        .set("/spec/startStrategy", json!("Paused"))
        .set("/metadata/annotations", interfaces);
    for _ in 0..2 {
        pod.sync_ok(&vmi).await;
        let status = &pod.domain().await["Status"];
        let expected = (&json!("Paused"), &json!("User"));
        assert_eq!((&status["Status"], &status["Reason"]), expected);
    }
    let xml = pod.live_xml(&vmi);
    let spec = DomainSpec::from_xml(&xml).unwrap();
    assert_eq!(spec.memory.value, 256 << 10);
    assert!(spec.devices.interfaces.is_empty());
    let mut ports = spec.devices.controllers;
    ports.retain(|controller| controller.model == "pcie-root-port");
    let bus = |port: &Controller| port.address.as_ref().unwrap().bus.clone();
    assert!(ports.iter().all(|port| bus(port) == "0x00"), "{xml}");
    // Three for the interfaces, and those that small machines get.
    ports.retain(|port| {
        !xml.contains(&format!(
            "bus='{:#04x}'",
            port.index.parse::<u32>().unwrap()
        ))
    });
    assert!(ports.len() >= 3, "{xml}");

    pod.unpause(&vmi).await;
    assert_eq!(pod.domain().await["Status"]["Status"], "Running");
}
