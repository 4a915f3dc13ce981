//! Process 1 of the pod, around the launcher.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Pod, Vmi, in_pod};

/// A pod whose container disks wait for the end, with a log of passt's and one of QEMU's.
fn pod() -> (Pod, PathBuf) {
    let mut pod = Pod::new();
    pod.handler.serve();
    let socket = pod.path("/var/run/kubevirt/container-disks/disk_0.sock");
    std::fs::write(&socket, "").unwrap();
    std::fs::write(pod.path("/var/run/kubevirt/passt.log"), "no route\n").unwrap();
    std::fs::write(
        pod.path("/var/run/kubevirt-private/libvirt/qemu/log/default_vm.log"),
        "char device\nterminating",
    )
    .unwrap();
    (pod, socket)
}

/// The launcher below the monitor.
pub fn launcher(pod: &Pod) -> u32 {
    let mut launchers = pod.processes("virt-launcher");
    launchers.retain(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "virt-launcher\n"
    });
    assert_eq!(launchers.len(), 1, "{launchers:?}");
    launchers[0]
}

#[test]
fn the_pod_ends_with_the_launcher() {
    in_pod(async {
        let (mut pod, socket) = pod();
        let vmi = Vmi::new("watched").with_counter(&pod);
        pod.launch_monitored(&vmi, &["--keep-after-failure"]);
        pod.wait_until_ready().await;
        pod.count(&vmi).await;
        assert!(socket.exists());
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(
            !socket.exists(),
            "the container disk's container would wait for ever"
        );
        for text in [
            "Reaped Launcher main pid",
            "\"msg\":\"no route\"",
            "\"msg\":\"terminating\"",
        ] {
            pod.log_has(text).await;
        }
    });
}

#[test]
// D-sup-9 (docs/differences.md).
fn the_guest_of_a_launcher_that_was_killed_ends_too() {
    in_pod(async {
        let (mut pod, socket) = pod();
        let vmi = Vmi::new("orphan").with_counter(&pod);
        pod.launch_monitored(&vmi, &[]);
        pod.wait_until_ready().await;
        pod.count(&vmi).await;
        let killed = Command::new("kill")
            .args(["-s", "KILL", &launcher(&pod).to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        assert_eq!(pod.exit_code().await, 255);
        assert!(pod.guests().is_empty());
        assert!(!socket.exists());
        assert!(
            pod.log()
                .iter()
                .any(|line| line.contains("Killing QEMU gracefully.")),
            "{}",
            pod.log_tail()
        );
    });
}

#[tokio::test]
async fn process_1_of_a_pid_namespace_reaps_qemu() {
    let (mut pod, _) = pod();
    let vmi = Vmi::new("first").with_counter(&pod);
    let mut namespace = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        namespace.arg("--map-current-user");
    }
    namespace.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    pod.launch_monitored_by(&mut namespace, &vmi, &[]);
    pod.wait_until_ready().await;
    // Neither libvirt's probes of QEMU nor its end must wait for a process that reaps them.
    pod.count(&vmi).await;
    pod.end(&vmi).await;
    assert_eq!(pod.exit_code().await, 0);
    assert!(
        pod.handler.all().iter().any(|event| event.is_final()),
        "{}",
        pod.log_tail()
    );
}

#[test]
fn a_signal_reaches_the_launcher_and_its_status_the_kubelet() {
    in_pod(async {
        let (mut pod, socket) = pod();
        let vmi = Vmi::new("signal");
        pod.launch_monitored(&vmi, &["--grace-period-seconds", "1"]);
        pod.wait_until_ready().await;
        pod.signal("QUIT");
        assert_eq!(pod.exit_code().await, 0);
        assert!(!socket.exists());

        let mut pod = Pod::new();
        pod.launch_monitored(&vmi, &["--no-such-flag"]);
        assert_eq!(pod.exit_code().await, 2);
        assert!(
            pod.log()
                .iter()
                .any(|line| line.contains("dirty virt-launcher shutdown: exit-code 2")),
            "{}",
            pod.log_tail()
        );
    });
}

#[test]
// D-sup-11 (docs/differences.md).
fn the_container_of_a_failed_launcher_is_kept() {
    in_pod(async {
        let (mut pod, socket) = pod();
        let vmi = Vmi::new("kept");
        pod.launch_monitored(&vmi, &["--keep-after-failure", "--no-such-flag"]);
        pod.log_has("keeping virt-launcher container alive").await;
        assert!(!socket.exists());
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 2);
    });
}
