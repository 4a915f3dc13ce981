//! Starts in which QEMU takes long, and what may come between.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::harness::{Event, Guest, Pod, SlowQemu, Vmi, pod_tool, signal};

/// A launcher whose QEMU waits at its start, and the sync that started it.
struct Slow {
    pod: Pod,
    vmi: Vmi,
    qemu: SlowQemu,
    sync: JoinHandle<()>,
}

impl Slow {
    async fn start(name: &str, more: &[&str]) -> Self {
        let mut pod = Pod::new();
        let vmi = Vmi::new(name).with_counter(&pod);
        let qemu = SlowQemu::new(&pod);
        pod.handler.serve();
        pod.launch_by(&mut qemu.command(), &vmi, more);
        pod.wait_until_ready().await;
        // Else it would be part of what takes long.
        pod.log_has("QEMU's capabilities are known").await;
        let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
        // Its answer may be an error, or never come.
        let sync = tokio::spawn(async move { drop(cmd.sync_virtual_machine(request).await) });
        Self {
            pod,
            vmi,
            qemu,
            sync,
        }
    }
}

/// The guest boots after all.
async fn boots(pod: &Pod, vmi: &Vmi) -> Guest {
    let guest = pod.guest(vmi).await;
    guest.ticks_on().await;
    guest
}

#[tokio::test]
async fn the_timeout_for_a_definition_does_not_end_a_start() {
    let mut slow = Slow::start("slow-timeout", &["--qemu-timeout", "15s"]).await;
    let waiting = slow.qemu.waiting(&mut slow.pod).await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    drop(waiting);
    slow.sync.await.unwrap();
    boots(&slow.pod, &slow.vmi).await;
    slow.pod.end(&slow.vmi).await;
    assert_eq!(slow.pod.exit_code().await, 0);
}

#[tokio::test]
async fn a_pod_in_which_nothing_is_defined_ends_at_the_timeout() {
    let mut pod = Pod::new();
    pod.handler.serve();
    pod.launch(&Vmi::new("nothing"), &["--qemu-timeout", "1s"]);
    assert_eq!(pod.exit_code().await, 2);
    let text = "timed out waiting for domain to be defined";
    assert!(pod.log_tail().contains(text), "{}", pod.log_tail());
}

/// A pod without a monitor: the launcher itself has to leave nothing behind.
#[tokio::test]
// D-vm-14 (docs/differences.md).
async fn sigterm_during_a_start_leaves_no_qemu() {
    for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
        let mut slow = Slow::start("slow-term", &[libvirt]).await;
        let _waiting = slow.qemu.waiting(&mut slow.pod).await;
        slow.pod.signal("TERM");
        assert_eq!(slow.pod.exit_code().await, 0, "{}", slow.pod.log_tail());
        slow.sync.await.unwrap();
        assert_eq!(slow.pod.commands(), [""; 0], "{libvirt}");
        let events = slow.pod.handler.all();
        assert!(events.is_empty(), "no domain was to be seen: {events:?}");
    }
}

#[tokio::test]
async fn sigterm_during_a_start_kills_a_qemu_that_hangs() {
    let mut slow = Slow::start("hung-term", &["--libvirt=auto"]).await;
    let _waiting = slow.qemu.waiting(&mut slow.pod).await;
    signal("STOP", &slow.pod.processes("/bin/sh")[..1]);
    slow.pod.signal("TERM");
    assert_eq!(slow.pod.exit_code().await, 0, "{}", slow.pod.log_tail());
    assert_eq!(slow.pod.commands(), [""; 0]);
}

#[tokio::test]
async fn kill_ends_a_start_and_the_next_sync_begins_anew() {
    let mut slow = Slow::start("slow-kill", &["--libvirt=auto"]).await;
    let waiting = slow.qemu.waiting(&mut slow.pod).await;
    slow.pod.kill(&slow.vmi).await;
    slow.sync.await.unwrap();
    drop(waiting);
    assert!(slow.pod.domain().await.is_null());
    slow.pod.sync_ok(&slow.vmi).await;
    boots(&slow.pod, &slow.vmi).await;
    slow.pod.end(&slow.vmi).await;
    assert_eq!(slow.pod.exit_code().await, 0);
}

#[tokio::test]
async fn a_daemon_that_dies_during_a_start_leaves_one_guest() {
    let mut slow = Slow::start("slow-daemon", &["--libvirt=auto"]).await;
    let waiting = slow.qemu.waiting(&mut slow.pod).await;
    signal("KILL", &slow.pod.libvirt_daemons());
    slow.pod.log_has("Reconnected to libvirt").await;
    drop(waiting);
    slow.sync.await.unwrap();
    slow.pod.sync_ok(&slow.vmi).await;
    boots(&slow.pod, &slow.vmi).await;
    assert_eq!(slow.pod.guests().len(), 1);
    slow.pod.end(&slow.vmi).await;
    assert_eq!(slow.pod.exit_code().await, 0);
    assert_eq!(slow.pod.commands(), [""; 0]);
}

/// As virt-handler does with a VMI that is deleted while it starts: the definition goes, and then
/// QEMU.
#[tokio::test]
async fn delete_during_a_start_leaves_nothing_behind() {
    let mut slow = Slow::start("slow-delete", &["--libvirt=auto"]).await;
    let waiting = slow.qemu.waiting(&mut slow.pod).await;
    let (mut cmd, request) = (slow.pod.cmd(), slow.pod.request(slow.vmi.value()));
    let delete = tokio::spawn(async move { cmd.delete_virtual_machine(request).await });
    // It waits for its turn; a call that does not is answered meanwhile.
    assert!(slow.pod.domain().await.is_null());
    assert!(!delete.is_finished());
    drop(waiting);
    slow.sync.await.unwrap();
    let answer = delete.await.unwrap().unwrap().into_inner();
    assert!(answer.success, "{}", answer.message);
    // The guest runs without a definition, until it is killed; then there is nothing to delete.
    boots(&slow.pod, &slow.vmi).await;
    slow.pod.kill(&slow.vmi).await;
    slow.pod.handler.event("final", Event::is_final).await;
    assert_eq!(slow.pod.exit_code().await, 0);
    assert_eq!(slow.pod.commands(), [""; 0]);
}

#[tokio::test]
async fn launcherctl_knows_of_a_start_that_is_under_way() {
    let mut slow = Slow::start("slow-shutdown", &["--libvirt=auto"]).await;
    let waiting = slow.qemu.waiting(&mut slow.pod).await;
    let launcherctl = |arguments: &[&str]| {
        let mut command = pod_tool("launcherctl");
        command.args(arguments).arg("--root");
        command.arg(slow.pod.root());
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let status = launcherctl(&["status"]).await.unwrap();
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains("slow-shutdown: starting"), "{text}");
    let late = ["shutdown", "--timeout", "1"];
    let late = launcherctl(&late).await.unwrap();
    let error = String::from_utf8(late.stderr).unwrap();
    assert!(!late.status.success(), "{error}");
    assert!(error.contains("not shut down within 1 s"), "{error}");

    let shutdown = launcherctl(&["shutdown", "--timeout", "300"]);
    // The start must not have ended before it is asked.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!shutdown.is_finished());
    drop(waiting);
    slow.sync.await.unwrap();
    let down = shutdown.await.unwrap();
    let error = String::from_utf8_lossy(&down.stderr);
    assert!(down.status.success(), "{error}");
    assert_eq!(slow.pod.exit_code().await, 0);
}
