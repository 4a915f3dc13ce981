//! `RESTART_LAUNCHER=yes` in the image, or `--restart-launcher`: the monitor starts a launcher that
//! was killed again, and the guest does not notice.

use std::process::Command;

use serde_json::{Value, json};

use api::proto::cmd::v1::GuestPingRequest;

use crate::container::status;
use crate::faults::targets;
use crate::guest_agent::{freeze, guest_info_until, unfreeze};
use crate::harness::{Event, Pod, Stopped, Vmi, in_pod, until};
use crate::monitor::launcher;
use crate::resources::with_cpus_of_host;

/// A guest that counts below a monitor that restarts its launcher.
async fn counting(name: &str, more: &[&str]) -> Pod {
    let mut pod = Pod::new();
    let vmi = Vmi::new(name).with_counter(&pod);
    launch(&mut pod, &vmi, more).await;
    pod.count(&vmi).await;
    pod
}

async fn launch(pod: &mut Pod, vmi: &Vmi, more: &[&str]) {
    pod.handler.serve();
    pod.set_env("RESTART_LAUNCHER", "yes");
    pod.launch_monitored(vmi, more);
    pod.wait_until_ready().await;
}

pub fn kill_launcher(pod: &Pod) {
    kill(launcher(pod));
}

fn kill(pid: u32) {
    let killed = Command::new("kill")
        .args(["-s", "KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
}

/// The process that virt-handler finds behind the command socket.
fn owner_of_socket(pod: &Pod) -> u32 {
    let socket = pod.path("/var/run/kubevirt/sockets/launcher-sock");
    let call = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let owner = rustix::net::sockopt::socket_peercred(&call).unwrap().pid;
    owner.as_raw_nonzero().get().unsigned_abs()
}

/// The child of the monitor that owns the socket after `dead`.
async fn next_owner(pod: &Pod, dead: u32) -> u32 {
    until("another process owns the socket", || {
        let owner = owner_of_socket(pod);
        // Meanwhile the monitor owns it.
        let command = std::fs::read_to_string(format!("/proc/{owner}/cmdline"));
        owner != dead && command.is_ok_and(|command| command.contains("own-command-socket"))
    })
    .await;
    owner_of_socket(pod)
}

/// virt-handler looks for virtqemud there, and for the pod's network.
fn assert_owner_has_daemons(pod: &Pod) {
    let owner = owner_of_socket(pod);
    let children = std::fs::read_to_string(format!("/proc/{owner}/task/{owner}/children")).unwrap();
    let children: Vec<u32> = children
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let daemons = pod.libvirt_daemons();
    assert!(!daemons.is_empty() && owner != launcher(pod));
    if pod.is_container() {
        // For passt, as without the switch.
        assert_eq!(status(daemons[0], "CapAmb"), "0000000000000400");
    }
    assert!(
        daemons.iter().all(|daemon| children.contains(daemon)),
        "{daemons:?} {children:?}"
    );
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_launcher_that_is_killed_is_started_again_and_has_the_guest_as_it_was() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("again").with_stubborn_counter(&pod);
        launch(&mut pod, &vmi, &["--grace-period-seconds", "600"]).await;
        let guest = pod.count(&vmi).await;
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
        let event = pod.handler.k8s_event("LauncherRestarted").await;
        let message = event["message"].as_str().unwrap();
        assert!(message.contains("SIGKILL"), "{event}");
        assert_eq!(event["type"], "Warning");

        pod.unpause(&vmi).await;
        guest.ticks_on_without_reset().await;
        pod.hotplug_image("plug", 1 << 20);
        pod.sync_ok(&vmi.clone().hotplugged("plug", "PLUGGED", "scsi"))
            .await;
        assert_eq!(targets(&pod).await, ["vda", "sda"]);

        // What was asked of the first one is asked of the next one.
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
        let mut pod = counting("events", &[]).await;
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
// D-sup-16 (docs/differences.md).
fn the_agent_of_a_frozen_guest_has_its_commands_also_for_the_next_launcher() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("frozen").with_image(&pod);
        launch(&mut pod, &vmi, &[]).await;
        let _guest = pod.boot(&vmi).await;
        let is_known = |status: &'static str| {
            move |info: &Value| {
                info["fsFreezeStatus"] == status && info["supportedCommands"].is_array()
            }
        };
        let before = guest_info_until(&mut pod, "known", is_known("thawed")).await;
        assert!(freeze(&pod, &vmi, 0).await.success);
        kill_launcher(&pod);
        pod.wait_until_ready().await;
        let frozen = guest_info_until(&mut pod, "known again", is_known("frozen")).await;
        // It is taken for able to do all, also what it disables at any time.
        let mut expected = before["supportedCommands"].clone();
        for command in expected.as_array_mut().unwrap() {
            command["enabled"] = json!(true);
        }
        assert_eq!(frozen["supportedCommands"], expected);
        assert!(unfreeze(&pod, &vmi).await.success);
        pod.end(&vmi).await;
    });
}

#[test]
fn after_three_deaths_in_a_minute_the_pod_ends() {
    in_pod(async {
        let mut pod = counting("thrice", &[]).await;
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

#[test]
// D-sup-16 (docs/differences.md).
fn a_pod_whose_launcher_does_not_come_back_ends_in_order() {
    in_pod(async {
        let mut pod = counting("silent", &["--libvirt=auto"]).await;
        assert_owner_has_daemons(&pod);
        let before = (owner_of_socket(&pod), pod.libvirt_daemons());
        kill_launcher(&pod);
        pod.log_count("Marked as ready", 2).await;
        assert_owner_has_daemons(&pod);
        assert_eq!((owner_of_socket(&pod), pod.libvirt_daemons()), before);
        pod.libvirt_daemons().into_iter().for_each(kill);
        pod.log_has("Reconnected to libvirt").await;
        assert_owner_has_daemons(&pod);
        // The next launcher waits for it.
        let _daemon = Stopped::now(pod.libvirt_daemons());
        kill_launcher(&pod);
        pod.log_count("Hypervisor set to", 3).await;
        let owner = owner_of_socket(&pod);
        let monitors = pod.processes("virt-launcher-monitor");
        assert!(monitors.len() == 2 && monitors.contains(&owner));
        kill(owner);
        let next = next_owner(&pod, owner).await;
        // It has begun less than a second ago.
        kill(next);
        next_owner(&pod, next).await;
        let _launcher = Stopped::now(vec![launcher(&pod)]);
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 255, "{}", pod.log_tail());
        pod.log_has("Killing QEMU gracefully.").await;
        assert!(pod.guests().is_empty());
    });
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_daemon_that_does_not_serve_yet_when_its_launcher_dies_is_replaced() {
    in_pod(async {
        let mut pod = counting("mute", &["--libvirt=auto"]).await;
        let before = pod.libvirt_daemons();
        before.iter().copied().for_each(kill);
        let next = || {
            pod.libvirt_daemons()
                .into_iter()
                .find(|it| !before.contains(it))
        };
        until("the next daemon", || next().is_some()).await;
        let stopped = next().unwrap();
        let _stopped = Stopped::now(vec![stopped]);
        kill_launcher(&pod);
        pod.log_count("Marked as ready", 2).await;
        assert!(!pod.libvirt_daemons().contains(&stopped));
        assert_owner_has_daemons(&pod);
    });
}

#[test]
fn a_guest_that_is_paused_until_its_emulator_is_pinned_runs_on_under_the_next_launcher() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("isolated")
            .with_counter(&pod)
            .set("/spec/domain/cpu/dedicatedCpuPlacement", json!(true))
            .set("/spec/domain/cpu/isolateEmulatorThread", json!(true));
        pod.handler.serve();
        pod.launch_monitored(&vmi, &["--restart-launcher", "--libvirt=auto"]);
        pod.wait_until_ready().await;
        let sync = async |pod: &Pod| {
            let request = pod.request(vmi.value());
            let request = request.with_options(&with_cpus_of_host());
            let answer = pod.cmd().sync_virtual_machine(request).await;
            pod.accepted("sync", answer);
        };
        sync(&pod).await;
        pod.handler.status("Paused").await;
        pod.handler.forget();
        kill_launcher(&pod);
        pod.wait_until_ready().await;
        pod.handler.status("Paused").await;
        pod.handler.forget();
        sync(&pod).await;
        pod.handler.status("Running").await;
        // A user's pause is another one.
        pod.pause(&vmi).await;
        pod.handler.status("Paused").await;
        kill_launcher(&pod);
        pod.wait_until_ready().await;
        sync(&pod).await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
        pod.end(&vmi).await;
    });
}
