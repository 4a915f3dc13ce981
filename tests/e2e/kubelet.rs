//! The kubelet's rules for a container's life, in all orders: postStart before or beside the entry
//! point, preStop, SIGTERM, and SIGKILL at the end of the grace period; with exec and httpGet
//! handlers.

use std::process::{Command, Stdio};
use std::time::Duration;

use api::proto::cmd::v1::VmiRequest;
use api::proto::cmd::v1::cmd_client::CmdClient;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::Channel;

use crate::harness::{
    Event, Handler, Pod, Stopped as HungProcesses, TEST_TIMEOUT, User, Vmi, in_container,
};

/// After preStop has used up the grace period, the kubelet leaves this much for SIGTERM.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// preStop in a pod that wants its guest to shut down cleanly, whoever deletes the pod.
const SHUTDOWN: Hook = Hook::Exec(&["launcherctl", "shutdown"]);

/// A lifecycle handler of a container, or a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Hook {
    Exec(&'static [&'static str]),
    /// `GET /` on this port of the pod.
    HttpGet(u16),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Succeeded,
    Failed,
    TimedOut,
}

/// Runs a handler, and kills it when it takes too long.
async fn handle(pod: &Pod, hook: Hook, limit: Duration) -> Outcome {
    let command = match hook {
        Hook::Exec(program) => pod.exec_command(program),
        Hook::HttpGet(port) => {
            let mut command = Command::new("nsenter");
            let get = format!(
                r#"exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && grep -q '^HTTP/.* 200' <&3"#
            );
            command
                .args(["--target", &pod.first_process().to_string(), "--net"])
                .args(["bash", "-c", &get]);
            command
        }
    };
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    match timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => Outcome::Succeeded,
        Ok(_) => Outcome::Failed,
        Err(_) => Outcome::TimedOut,
    }
}

/// How a container was stopped.
#[derive(Debug)]
struct Stopped {
    pre_stop: Option<Outcome>,
    /// The grace period was over before process 1 had ended.
    killed: bool,
}

/// Stops the container: preStop, SIGTERM, and SIGKILL when `grace` is over.
async fn stop(pod: &mut Pod, pre_stop: Option<Hook>, grace: Duration) -> Stopped {
    let end = Instant::now() + grace;
    let pre_stop = match pre_stop {
        Some(hook) => Some(handle(pod, hook, grace).await),
        None => None,
    };
    let end = end.max(Instant::now() + LEAST_GRACE);
    // The container may have ended by itself; the kubelet does not mind.
    signal(pod, "TERM");
    let killed = timeout_at(end, pod.exit()).await.is_err();
    if killed {
        signal(pod, "KILL");
        pod.exit().await;
    }
    Stopped { pre_stop, killed }
}

fn signal(pod: &Pod, signal: &str) {
    let _ = Command::new("kill")
        .args(["-s", signal, &pod.first_process().to_string()])
        .stderr(Stdio::null())
        .status();
}

/// virt-handler's part in the end: shuts a marked guest down, and removes a domain that is down.
async fn virt_handler(mut events: Handler, mut cmd: CmdClient<Channel>, request: VmiRequest) {
    loop {
        let event = events.event("any", |_| true).await;
        let marked = "/Spec/Metadata/KubeVirt/GracePeriod/MarkedForGracefulShutdown";
        // A launcher that has ended does not answer.
        if matches!(event.status(), "Shutoff" | "Crashed") {
            drop(cmd.delete_virtual_machine(request.clone()).await);
        } else if event.domain.pointer(marked) == Some(&json!(true)) {
            drop(cmd.shutdown_virtual_machine(request.clone()).await);
        }
    }
}

/// Stops a pod with a domain, while virt-handler does its part.
async fn stop_with_virt_handler(
    pod: &mut Pod,
    vmi: &Vmi,
    pre_stop: Option<Hook>,
    grace: Duration,
) -> Stopped {
    let handler = virt_handler(pod.handler.reader(), pod.cmd(), pod.request(vmi.value()));
    let handler = tokio::spawn(handler);
    let stopped = stop(pod, pre_stop, grace).await;
    handler.abort();
    stopped
}

/// Starts a container whose entry point is held back right after its execve(2).
async fn launch_held(pod: &mut Pod, vmi: &Vmi) {
    pod.launch(vmi, &[]);
    let comm = format!("/proc/{}/comm", pod.first_process());
    let is_entry =
        || std::fs::read_to_string(&comm).is_ok_and(|name| name.starts_with("virt-launcher"));
    while !is_entry() {
        sleep(Duration::from_millis(1)).await;
    }
    signal(pod, "STOP");
}

fn nothing_is_left(pod: &Pod) {
    assert_eq!(pod.commands(), [""; 0], "{}", pod.log_tail());
}

#[test]
fn a_post_start_handler_may_run_before_the_entry_point() {
    in_container(User::Qemu, async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("before").with_counter(&pod);
        pod.handler.serve();
        launch_held(&mut pod, &vmi).await;
        let marker = "/var/run/kubevirt/post-start";
        let limit = Duration::from_secs(60);
        let ping = Hook::Exec(&["launcherctl", "launcher", "ping"]);
        assert_eq!(handle(&pod, ping, limit).await, Outcome::Failed);
        let touch = Hook::Exec(&["touch", "/var/run/kubevirt/post-start"]);
        assert_eq!(handle(&pod, touch, limit).await, Outcome::Succeeded);
        signal(&pod, "CONT");
        pod.wait_until_ready().await;
        pod.count(&vmi).await;
        assert!(pod.path(marker).exists());
        assert_eq!(handle(&pod, ping, limit).await, Outcome::Succeeded);
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}

/// A postStart handler that fails ends the container, whatever the launcher is doing by then.
#[test]
fn a_container_can_be_stopped_at_any_time_before_it_has_a_guest() {
    const PRE_STOPS: [Option<Hook>; 4] = [
        None,
        Some(SHUTDOWN),
        Some(Hook::HttpGet(8080)),
        Some(Hook::Exec(&["/nonexistent"])),
    ];
    in_container(User::Qemu, async {
        for moment in ["started", "ready"] {
            for pre_stop in PRE_STOPS {
                let mut pod = Pod::new();
                let vmi = Vmi::new("early");
                pod.handler.serve();
                pod.launch(&vmi, &[]);
                // From here on process 1 has a say: before, the kernel drops its SIGTERM.
                pod.log_has("virt-launcher-monitor ").await;
                if moment == "ready" {
                    pod.wait_until_ready().await;
                }
                let stopped = stop(&mut pod, pre_stop, Duration::from_secs(60)).await;
                let case = format!("{moment} {pre_stop:?} {stopped:?}\n{}", pod.log_tail());
                assert!(!stopped.killed, "{case}");
                let expected = pre_stop.map(|hook| match hook {
                    SHUTDOWN => Outcome::Succeeded,
                    _ => Outcome::Failed,
                });
                assert_eq!(stopped.pre_stop, expected, "{case}");
                assert_eq!(pod.exit_code().await, 0, "{case}");
                nothing_is_left(&pod);
            }
        }
    });
}

#[test]
fn a_pre_stop_handler_shuts_the_guest_down() {
    in_container(User::Qemu, async {
        let (mut pod, vmi, _guest) = Pod::counting("prestop", &[]).await;
        let stopped =
            stop_with_virt_handler(&mut pod, &vmi, Some(SHUTDOWN), Duration::from_secs(90)).await;
        assert!(!stopped.killed, "{stopped:?}\n{}", pod.log_tail());
        let off = pod.handler.status("Shutoff");
        assert_eq!(off.await.reason(), "Shutdown");
        // The container may end with its guest while the handler still runs in it.
        assert_ne!(stopped.pre_stop, Some(Outcome::TimedOut));
        assert_eq!(pod.exit_code().await, 0);
        nothing_is_left(&pod);
    });
}

/// Without virt-handler the container stays until SIGTERM, so the handler's own end is seen.
#[test]
fn handlers_that_wait_for_the_same_guest_end_with_it() {
    in_container(User::Qemu, async {
        let (mut pod, _, _guest) = Pod::counting("twice", &[]).await;
        let limit = Duration::from_secs(90);
        let both = tokio::join!(handle(&pod, SHUTDOWN, limit), handle(&pod, SHUTDOWN, limit));
        assert_eq!(both, (Outcome::Succeeded, Outcome::Succeeded));
        assert!(pod.guests().is_empty());
        assert_eq!(handle(&pod, SHUTDOWN, limit).await, Outcome::Succeeded);
        let stopped = stop(&mut pod, None, LEAST_GRACE).await;
        // virt-handler has not removed the domain: the launcher waits for that, and the kubelet
        // does not.
        assert!(stopped.killed);
        nothing_is_left(&pod);
    });
}

#[test]
fn a_guest_that_does_not_shut_down_is_killed_at_the_end_of_the_grace_period() {
    const IMPATIENT: Hook = Hook::Exec(&["launcherctl", "shutdown", "--timeout", "1"]);
    const HANGS: Hook = Hook::Exec(&["sleep", "600"]);
    in_container(User::Qemu, async {
        for (hook, outcome) in [(IMPATIENT, Outcome::Failed), (HANGS, Outcome::TimedOut)] {
            let (mut pod, vmi) = if outcome == Outcome::Failed {
                // The agent is asked first, and hangs.
                let (mut pod, vmi, mut guest) = Pod::booted("stubborn", &[]).await;
                pod.handler.agent().await;
                guest
                    .run("touch /run/ignore-power; killall -STOP qemu-ga")
                    .await;
                (pod, vmi)
            } else {
                let mut pod = Pod::new();
                let vmi = Vmi::new("stubborn").with_stubborn_counter(&pod);
                pod.start(&vmi, &[]).await;
                pod.count(&vmi).await;
                (pod, vmi)
            };
            let grace = Duration::from_secs(4);
            let stopped = stop_with_virt_handler(&mut pod, &vmi, Some(hook), grace).await;
            assert!(stopped.killed, "{}", pod.log_tail());
            assert_eq!(stopped.pre_stop, Some(outcome));
            nothing_is_left(&pod);
        }
    });
}

/// virt-handler's Kill is lost here, so that all of the time is the launcher's own.
#[test]
// D-vm-19 (docs/differences.md).
fn a_guest_whose_qemu_hangs_is_killed_before_the_kubelet_kills_the_pod() {
    in_container(User::Qemu, async {
        let (mut pod, vmi) = Pod::started("hung", &[]).await;
        let qemu = HungProcesses::now(pod.guests());
        // The launcher has 15 s more than the guest, and the kubelet waits 15 s more than that.
        let grace = &vmi.value()["spec"]["terminationGracePeriodSeconds"];
        let grace = Duration::from_secs(grace.as_u64().unwrap() + 30);
        let stopped = stop_with_virt_handler(&mut pod, &vmi, None, grace).await;
        drop(qemu);
        assert!(!stopped.killed, "{}", pod.log_tail());
        let off = pod.handler.status("Shutoff").await;
        assert_eq!(off.reason(), "Destroyed");
        pod.handler.event("final", Event::is_final).await;
        assert_eq!(pod.exit_code().await, 0);
        nothing_is_left(&pod);
    });
}

#[test]
fn probes_run_all_the_time_and_leave_nothing() {
    const PING: Hook = Hook::Exec(&["launcherctl", "launcher", "ping"]);
    // What the kubelet leaves when it gives up: an orphan of process 1.
    const ORPHAN: Hook = Hook::Exec(&["sh", "-c", "sleep 0.2 & exit 1"]);
    in_container(User::Qemu, async {
        let (mut pod, vmi) = Pod::started("probed", &[]).await;
        for _ in 0..20 {
            let limit = Duration::from_secs(60);
            let outcomes = tokio::join!(
                handle(&pod, PING, limit),
                handle(&pod, Hook::HttpGet(8080), limit),
                handle(&pod, ORPHAN, limit),
            );
            let expected = (Outcome::Succeeded, Outcome::Failed, Outcome::Failed);
            assert_eq!(outcomes, expected);
        }
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let states = pod.exec(&["ps", "--no-header", "axo", "stat,command"]);
            if !states.lines().any(|line| line.starts_with('Z')) {
                break;
            }
            assert!(Instant::now() < end, "{states}");
            sleep(Duration::from_millis(100)).await;
        }
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0);
    });
}
