//! After the launcher or a libvirt daemon was killed, the next one takes over, and the guest does
//! not notice.

use serde_json::{Value, json};

use crate::harness::{Event, Guest, Pod, Vmi, in_pod, signal};
use crate::launcherctl::says;

/// The domain is reported, a disk can be plugged and unplugged, and the guest has counted on.
async fn all_works(pod: &mut Pod, vmi: &Vmi, guest: &Guest, qemu: &[u32]) {
    pod.handler.status("Running").await;
    assert_eq!(
        pod.domain().await["Spec"]["Metadata"]["KubeVirt"]["UID"],
        vmi.uid()
    );
    pod.hotplug_image("plug", 1 << 20);
    pod.sync_ok(&vmi.clone().hotplugged("plug", "PLUGGED", "scsi"))
        .await;
    let has_disk = |domain: &Value| domain.to_string().contains("PLUGGED");
    pod.domain_until("with the disk", has_disk).await;
    pod.sync_ok(vmi).await;
    pod.domain_until("without the disk", |domain| !has_disk(domain))
        .await;
    guest.ticks_on_without_reset().await;
    assert_eq!(pod.guests(), qemu, "the same QEMU");
}

async fn status_says(pod: &Pod, problem: &str) {
    let root = pod.root().display().to_string();
    let problem = format!("  problem    {problem}");
    says(pod.root(), &["status", "--root", &root], problem).await;
}

async fn ends(pod: &mut Pod, vmi: &Vmi) {
    pod.end(vmi).await;
    pod.handler.event("final", Event::is_final).await;
    assert_eq!(pod.exit_code().await, 0);
    assert_eq!(pod.commands(), [""; 0], "nothing is left");
}

#[tokio::test]
async fn a_guest_that_ended_without_a_launcher_is_reported() {
    for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
        let (mut pod, vmi) = Pod::started("ended", &[libvirt]).await;
        pod.kill_launcher().await;
        pod.handler.forget();
        signal("KILL", &pod.guests());
        pod.launch(&vmi, &[libvirt]);
        pod.wait_until_ready().await;
        // As virt-handler got it.
        pod.sync_ok(&vmi.clone().set("/status/phase", json!("Running")))
            .await;
        pod.handler.status("Shutoff").await;
        pod.delete(&vmi).await;
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0);
    }
}

#[tokio::test]
// D-sup-14 (docs/differences.md).
async fn the_next_launcher_takes_the_guest_over() {
    for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
        let (mut pod, vmi, guest) = Pod::counting("adopted", &[libvirt]).await;
        let (qemu, daemons) = (pod.guests(), pod.libvirt_daemons());
        // A QEMU that is being probed would outlive its libvirt, as with any that is killed.
        pod.log_has("QEMU's capabilities are known").await;
        pod.kill_launcher().await;
        pod.handler.forget();
        assert_eq!(pod.guests(), qemu, "QEMU outlives the launcher");
        pod.launch(&vmi, &[libvirt]);
        pod.wait_until_ready().await;
        all_works(&mut pod, &vmi, &guest, &qemu).await;
        status_says(&pod, "the launcher was restarted: ").await;
        assert_eq!(
            pod.libvirt_daemons(),
            daemons,
            "the daemon is taken over too"
        );
        ends(&mut pod, &vmi).await;
    }
}

#[test]
// D-sup-2, D-sup-3 (docs/differences.md).
fn a_daemon_that_dies_or_hangs_is_replaced() {
    in_pod(async {
        let (mut pod, vmi, guest) = Pod::counting("orphaned", &["--libvirt=auto"]).await;
        let qemu = pod.guests();
        // Killed under the launcher.
        pod.handler.forget();
        signal("KILL", &pod.libvirt_daemons());
        pod.log_has("Reconnected to libvirt").await;
        all_works(&mut pod, &vmi, &guest, &qemu).await;
        // It hangs while the launcher has calls in progress.
        pod.handler.forget();
        let stopped = pod.libvirt_daemons();
        signal("STOP", &stopped);
        assert_eq!(
            pod.domain().await["Status"]["Status"],
            "Running",
            "as it was seen last"
        );
        status_says(&pod, "libvirt does not answer: ").await;
        pod.log_count("Reconnected to libvirt", 2).await;
        assert!(
            pod.libvirt_daemons()
                .iter()
                .all(|pid| !stopped.contains(pid))
        );
        all_works(&mut pod, &vmi, &guest, &qemu).await;
        ends(&mut pod, &vmi).await;
    });
}

#[tokio::test]
async fn a_daemon_that_is_dead_or_hangs_at_the_launchers_start_is_replaced() {
    let (mut pod, vmi, guest) = Pod::counting("orphan", &["--libvirt=auto"]).await;
    let qemu = pod.guests();
    // Killed together with the launcher.
    pod.kill_launcher().await;
    pod.handler.forget();
    signal("KILL", &pod.libvirt_daemons());
    signal("KILL", &pod.processes("virtlogd"));
    pod.launch(&vmi, &["--libvirt=auto"]);
    pod.wait_until_ready().await;
    all_works(&mut pod, &vmi, &guest, &qemu).await;
    // It runs, but does not answer.
    pod.kill_launcher().await;
    pod.handler.forget();
    let stopped = pod.libvirt_daemons();
    signal("STOP", &stopped);
    pod.launch(&vmi, &["--libvirt=auto"]);
    pod.wait_until_ready().await;
    assert!(
        pod.libvirt_daemons()
            .iter()
            .all(|pid| !stopped.contains(pid))
    );
    all_works(&mut pod, &vmi, &guest, &qemu).await;
    ends(&mut pod, &vmi).await;
}

#[tokio::test]
async fn a_daemon_of_somebody_else_is_left_alone() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("foreign");
    let socket = pod.path("/var/run/libvirt/libvirt-sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    pod.launch(&vmi, &["--libvirt=auto"]);
    assert_eq!(pod.exit_code().await, 2);
    assert!(
        pod.log_tail()
            .contains("another libvirt daemon already serves"),
        "{}",
        pod.log_tail()
    );
    assert!(socket.exists());
}
