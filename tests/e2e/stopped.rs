//! A process beside the launcher hangs (SIGSTOP) while the launcher works: calls are answered
//! meanwhile, and all goes on when it goes on.

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::faults::{Held, launch, targets};
use crate::harness::{Event, Guest, Pod, Stopped, Vmi, in_pod};

/// virtlogd, if libvirt has one here; said if not.
fn log_daemon(pod: &Pod) -> Option<Stopped> {
    let found = pod.processes("virtlogd");
    if found.is_empty() {
        println!("skipped: libvirt has no virtlogd here");
        return None;
    }
    Some(Stopped::now(found))
}

/// A launcher by a daemon, which has nothing to do.
async fn idle(name: &str) -> (Pod, Vmi) {
    let (mut pod, vmi) = Pod::with_counter(name, &["--libvirt=auto"]).await;
    pod.log_has("QEMU's capabilities are known").await;
    (pod, vmi)
}

async fn ends(mut pod: Pod, vmi: &Vmi) {
    pod.end(vmi).await;
    pod.handler.event("final", Event::is_final).await;
    assert_eq!(pod.exit_code().await, 0);
}

#[test]
fn a_start_goes_on_when_virtlogd_does() {
    in_pod(async {
        let (pod, vmi) = idle("nolog").await;
        let Some(stopped) = log_daemon(&pod) else {
            return;
        };
        let answer = pod.sync(&vmi).await;
        assert!(
            !answer.success && answer.message.contains("is still in progress"),
            "{}",
            answer.message
        );
        assert!(pod.domain().await.is_null(), "a start is not shown");
        drop(stopped);
        pod.sync_ok(&vmi).await;
        pod.guest(&vmi).await.ticks_on().await;
        assert_eq!(pod.guests().len(), 1);
        ends(pod, &vmi).await;
    });
}

#[test]
fn a_start_that_waits_for_virtlogd_can_be_killed() {
    in_pod(async {
        let (mut pod, vmi) = idle("nologkill").await;
        let Some(stopped) = log_daemon(&pod) else {
            return;
        };
        let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
        let sync = tokio::spawn(async move { cmd.sync_virtual_machine(request).await });
        pod.log_has("Domain XML generated").await;
        let (mut cmd, request) = (pod.cmd(), pod.request(vmi.value()));
        let kill = tokio::spawn(async move { cmd.kill_virtual_machine(request).await });
        assert!(pod.domain().await.is_null());
        drop(stopped);
        let answer = sync.await.unwrap().unwrap().into_inner();
        println!("sync: {} {}", answer.success, answer.message);
        let answer = kill.await.unwrap().unwrap().into_inner();
        assert!(answer.success, "{}", answer.message);
        assert!(pod.guests().is_empty());
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 0);
    });
}

#[test]
fn a_sync_needs_no_virtlogd() {
    in_pod(async {
        // A command to an agent would taint the domain, which libvirt writes into the log while it
        // holds the domain.
        let (mut pod, vmi, guest) = Pod::counting("nologplug", &["--libvirt=auto"]).await;
        pod.hotplug_image("data", 1 << 20);
        let Some(stopped) = log_daemon(&pod) else {
            return;
        };
        let with = vmi.clone().hotplugged("data", "DATA", "scsi");
        pod.sync_ok(&with).await;
        assert_eq!(targets(&pod).await, ["vda", "sda"]);
        guest.ticks_on_without_reset().await;
        drop(stopped);
        pod.sync_ok(&vmi).await;
        assert_eq!(targets(&pod).await, ["vda"]);
        pod.handler.forget();
        ends(pod, &vmi).await;
    });
}

/// A guest that does not shut down when it is asked to, whose QEMU hangs while a disk is attached.
struct Attaching {
    pod: Pod,
    /// Without the disk.
    vmi: Vmi,
    with: Vmi,
    guest: Guest,
    qemu: Stopped,
    sync: JoinHandle<()>,
}

async fn attaching(name: &str) -> Attaching {
    let mut pod = Pod::new();
    let vmi = Vmi::new(name).with_stubborn_counter(&pod);
    pod.hotplug_image("data", 1 << 20);
    let with = vmi.clone().hotplugged("data", "DATA", "scsi");
    pod.handler.serve();
    launch(&mut pod, &vmi, "--libvirt=auto").await;
    let guest = pod.count(&vmi).await;
    let held = Held::at(&mut pod, "plug.prepared", &with).await;
    let qemu = Stopped::now(pod.guests());
    let sync = held.go_on();
    Attaching {
        pod,
        vmi,
        with,
        guest,
        qemu,
        sync,
    }
}

fn deletion_timestamp(domain: &Value) -> &Value {
    &domain["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["DeletionTimestamp"]
}

#[test]
// D-vm-16 (docs/differences.md).
fn a_disk_is_attached_when_qemu_goes_on() {
    in_pod(async {
        let Attaching {
            mut pod,
            with,
            guest,
            qemu,
            sync,
            ..
        } = attaching("hungplug").await;
        let request = pod.request(with.value());
        // libvirt makes it wait for the attach; it is answered in time, and the clock of the grace
        // period runs.
        let answer = pod.cmd().shutdown_virtual_machine(request).await;
        println!("shutdown: {:?}", answer.unwrap().into_inner());
        let has_clock = |event: &Event| deletion_timestamp(&event.domain).is_string();
        pod.handler.event("asked to shut down", has_clock).await;
        let domain = pod.domain().await;
        assert!(deletion_timestamp(&domain).is_string(), "{domain:#}");
        drop(qemu);
        sync.await.unwrap();
        pod.sync_ok(&with).await;
        assert_eq!(targets(&pod).await, ["vda", "sda"]);
        guest.ticks_on_without_reset().await;
        pod.handler.forget();
        ends(pod, &with).await;
    });
}

#[test]
// D-vm-19 (docs/differences.md).
fn a_guest_whose_qemu_hangs_is_killed() {
    in_pod(async {
        let Attaching {
            mut pod,
            vmi,
            qemu: _hangs,
            sync,
            ..
        } = attaching("hungkill").await;
        pod.kill(&vmi).await;
        assert_eq!(pod.guests(), [0; 0]);
        let off = pod.handler.status("Shutoff").await;
        assert_eq!(off.reason(), "Destroyed");
        sync.await.unwrap();
        ends(pod, &vmi).await;
    });
}
