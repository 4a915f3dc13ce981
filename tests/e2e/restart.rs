//! `--restart-launcher`: the monitor starts a launcher that was killed again, and the guest does
//! not notice.

use std::process::Command;

use serde_json::json;

use api::proto::cmd::v1::GuestPingRequest;

use crate::guest_agent::end_agent;
use crate::harness::{Event, Pod, Vmi, in_pod};
use crate::monitor::launcher;

/// A booted guest below a monitor that restarts its launcher.
async fn booted(name: &str, more: &[&str]) -> (Pod, Vmi, crate::harness::Guest) {
    let mut pod = Pod::new();
    let vmi = Vmi::new(name).with_image(&pod);
    pod.handler.serve();
    pod.launch_monitored(&vmi, &[&["--restart-launcher"], more].concat());
    pod.wait_until_ready().await;
    let guest = pod.boot(&vmi).await;
    (pod, vmi, guest)
}

fn kill_launcher(pod: &Pod) {
    let killed = Command::new("kill")
        .args(["-s", "KILL", &launcher(pod).to_string()])
        .status();
    assert!(killed.unwrap().success());
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_launcher_that_is_killed_is_started_again_and_has_the_guest_as_it_was() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = booted("again", &["--grace-period-seconds", "600"]).await;
        let (qemu, first) = (pod.guests(), launcher(&pod));
        pod.pause(&vmi).await;
        pod.handler.status("Paused").await;
        pod.handler.forget();
        kill_launcher(&pod);
        // A call does not fail meanwhile: it waits.
        pod.wait_until_ready().await;
        let vmi = vmi.set("/status/phase", json!("Running"));
        pod.sync_ok(&vmi).await;
        pod.handler
            .event("paused, by the next one", |event| {
                event.status() == "Paused" && event.reason() == "User"
            })
            .await;
        assert_ne!(launcher(&pod), first);
        assert_eq!(pod.guests(), qemu);

        pod.unpause(&vmi).await;
        assert_eq!(guest.run("echo alive").await, "alive");
        pod.hotplug_image("plug", 1 << 20);
        pod.sync_ok(&vmi.clone().hotplugged("plug", "PLUGGED", "scsi"))
            .await;
        guest
            .run_until("disks", |disks| disks.contains("PLUGGED"))
            .await;

        // What was asked of the first one is asked of the next one.
        guest
            .run("touch /run/ignore-power; killall -STOP qemu-ga")
            .await;
        let marked = |event: &Event| {
            event.domain["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["MarkedForGracefulShutdown"]
                == true
        };
        pod.shutdown(&vmi).await;
        let asked = "/Spec/Metadata/KubeVirt/GracePeriod/DeletionTimestamp";
        let clock = pod.domain().await.pointer(asked).unwrap().clone();
        assert!(clock.is_string(), "{clock}");
        // libvirt's copy follows a moment later.
        let name = format!("default_{}", vmi.name());
        let has_clock = |xml: String| xml.contains("deletionTimestamp");
        let path = pod.root().join(format!("run/qemu/{name}.xml"));
        if pod.is_container() {
            pod.domain_until("with the clock", |_| has_clock(pod.live_xml(&vmi)))
                .await;
        } else {
            pod.until("libvirt has the clock", || {
                has_clock(std::fs::read_to_string(&path).unwrap_or_default())
            })
            .await;
        }
        pod.signal("TERM");
        pod.handler.event("marked", marked).await;
        pod.handler.forget();
        kill_launcher(&pod);
        pod.wait_until_ready().await;
        let event = pod.handler.event("marked by the next one", marked).await;
        assert_eq!(event.domain.pointer(asked), Some(&clock), "it runs on");
        pod.end(&vmi).await;
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0, "{}", pod.log_tail());
        assert!(pod.guests().is_empty());
    });
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_launcher_that_is_killed_loses_no_kubernetes_event() {
    in_pod(async {
        let (mut pod, _, mut guest) = booted("events", &[]).await;
        end_agent(&pod, &mut guest).await;
        pod.handler.leave();
        let request = GuestPingRequest {
            domain_name: String::new(),
            timeout_seconds: 1,
        };
        pod.cmd().guest_ping(request).await.unwrap_err();
        let first = launcher(&pod);
        kill_launcher(&pod);
        pod.log_count("Marked as ready", 2).await;
        assert_ne!(launcher(&pod), first);
        pod.handler.serve();
        let event = pod.handler.k8s_event("GuestAgentPingFailed").await;
        assert_eq!(event["type"], "Warning");
    });
}

#[test]
fn after_three_deaths_in_a_minute_the_pod_ends() {
    in_pod(async {
        let (mut pod, _, _) = booted("thrice", &[]).await;
        for times in 1..3 {
            let before = launcher(&pod);
            kill_launcher(&pod);
            pod.log_count("Marked as ready", times + 1).await;
            assert_ne!(launcher(&pod), before);
        }
        kill_launcher(&pod);
        assert_eq!(pod.exit_code().await, 255);
        pod.log_has("virt-launcher has died 3 times in 60 s; giving up")
            .await;
        assert!(pod.guests().is_empty());
    });
}

/// `launcherctl launcher upgrade`, as `kubectl exec` runs it in the pod; what it prints, and
/// whether it succeeded.
fn upgrade(pod: &Pod, executable: &str) -> (bool, String) {
    let output = if pod.is_container() {
        pod.exec_output(&["launcherctl", "upgrade", "--root", "/", executable])
    } else {
        Command::new(env!("CARGO_BIN_EXE_pod-tools"))
            .args(["launcherctl", "upgrade", "--root"])
            .arg(pod.root())
            .arg(pod.path(executable))
            .output()
            .unwrap()
    };
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

const NEW: &str = "/var/run/kubevirt/new/virt-launcher";

#[test]
// D-sup-17 (docs/differences.md).
fn an_upgrade_fails_no_call_and_loses_no_event() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = booted("upgraded", &[]).await;
        std::fs::copy(env!("CARGO_BIN_EXE_virt-launcher"), pod.path(NEW)).unwrap();
        let (qemu, first) = (pod.guests(), launcher(&pod));
        // Calls all the time, each on a connection of its own.
        let socket = pod.path("/var/run/kubevirt/sockets/launcher-sock");
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let calls = tokio::spawn(async move {
            let mut count = 0;
            while stopped.try_recv().is_err() {
                let channel = os::grpc::connect(&socket).await.unwrap();
                let mut cmd = api::proto::cmd::v1::cmd_client::CmdClient::new(channel);
                let answer = cmd.get_domain(api::proto::cmd::v1::EmptyRequest {}).await;
                let answer = answer.unwrap().into_inner();
                assert!(answer.response.unwrap().success);
                count += 1;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            count
        });
        pod.handler.forget();
        let (pod, (upgraded, text)) = tokio::task::spawn_blocking(move || {
            let result = upgrade(&pod, NEW);
            (pod, result)
        })
        .await
        .unwrap();
        let mut pod = pod;
        assert!(upgraded, "{text}\n{}", pod.log_tail());
        stop.send(()).unwrap();
        assert!(calls.await.unwrap() > 0);
        assert_ne!(launcher(&pod), first);
        assert_eq!(pod.guests(), qemu);
        pod.handler.status("Running").await;
        pod.wait_until_ready().await;
        let vmi = vmi.set("/status/phase", json!("Running"));
        pod.sync_ok(&vmi).await;
        assert_eq!(guest.run("echo alive").await, "alive");
        pod.end(&vmi).await;
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0, "{}", pod.log_tail());
    });
}

#[test]
// D-sup-17 (docs/differences.md).
fn a_launcher_that_does_not_come_up_is_not_kept() {
    in_pod(async {
        let (mut pod, vmi, mut guest) = booted("downgraded", &[]).await;
        let qemu = pod.guests();
        let file = pod.path(NEW);
        std::fs::write(
            &file,
            "#!/bin/sh\n[ \"$1\" = --version ] && echo virt-launcher 9\n",
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).unwrap();
        let (pod_back, (upgraded, text)) = tokio::task::spawn_blocking(move || {
            let result = upgrade(&pod, NEW);
            (pod, result)
        })
        .await
        .unwrap();
        pod = pod_back;
        assert!(!upgraded && text.contains("did not come up"), "{text}");
        assert_eq!(pod.guests(), qemu);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi.clone().set("/status/phase", json!("Running")))
            .await;
        assert_eq!(guest.run("echo alive").await, "alive");
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0, "{}", pod.log_tail());
    });
}

#[tokio::test]
async fn without_a_monitor_that_restarts_there_is_no_upgrade() {
    let pod = Pod::ready(&Vmi::new("alone"), &["--restart-launcher"]).await;
    std::fs::copy(env!("CARGO_BIN_EXE_virt-launcher"), pod.path(NEW)).unwrap();
    let (pod, (upgraded, text)) = tokio::task::spawn_blocking(move || {
        let result = upgrade(&pod, NEW);
        (pod, result)
    })
    .await
    .unwrap();
    assert!(
        !upgraded && text.contains("without --restart-launcher"),
        "{text}"
    );
    pod.domain().await;
}
