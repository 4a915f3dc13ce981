//! The pod's way: libvirt's daemons as children, and `virsh` beside them.

use serde_json::json;

use crate::harness::{Pod, in_pod};

#[tokio::test]
async fn a_sync_waits_for_libvirts_next_daemon() {
    let (pod, vmi) = Pod::started("daemon-killed", &["--libvirt=auto"]).await;
    for pid in pod.libvirt_daemons() {
        let kill = std::process::Command::new("kill")
            .args(["-s", "KILL", &pid.to_string()])
            .status();
        assert!(kill.unwrap().success());
    }
    pod.sync_ok(&vmi).await;
    pod.end(&vmi).await;
}

#[test]
fn virsh_sees_the_same_domain() {
    in_pod(async {
        let (mut pod, vmi, _guest) = Pod::counting("virsh", &["--libvirt=auto"]).await;
        assert_eq!(pod.virsh(&["domstate", "default_virsh"]).trim(), "running");
        let xml = pod.virsh(&["dumpxml", "default_virsh"]);
        assert!(
            xml.contains(vmi.uid()) && xml.contains("ua-rootdisk"),
            "{xml}"
        );
        assert!(pod.virsh(&["domblklist", "default_virsh"]).contains("vda"));

        pod.hotplug_image("plug", 1 << 20);
        pod.sync_ok(&vmi.clone().hotplugged("plug", "PLUGGED", "scsi"))
            .await;
        assert!(
            pod.virsh(&["domblklist", "default_virsh"])
                .contains("plug.img")
        );
        pod.sync_ok(&vmi).await;
        assert!(
            !pod.virsh(&["domblklist", "default_virsh"])
                .contains("plug.img")
        );

        let vmi = vmi.set("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        pod.kill(&vmi).await;
        pod.delete(&vmi).await;
        pod.handler
            .event("final", crate::harness::Event::is_final)
            .await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(
            pod.libvirt_daemons().is_empty() && pod.processes("virtlogd").is_empty(),
            "the daemons end with the launcher"
        );
    });
}
