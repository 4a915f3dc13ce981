//! SIGTERM: the pod is to end.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Pod, TEST_TIMEOUT, Vmi, in_pod};

#[test]
fn sigterm_marks_the_domain_and_leaves_the_rest_to_virt_handler() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("term")
            .with_counter(&pod)
            .set("/spec/terminationGracePeriodSeconds", json!(60));
        pod.start(&vmi, &["--grace-period-seconds", "75"]).await;
        pod.count(&vmi).await;
        pod.signal("TERM");
        let marked = |event: &crate::harness::Event| {
            event.domain["Spec"]["Metadata"]["KubeVirt"]["GracePeriod"]["MarkedForGracefulShutdown"]
                == true
        };
        pod.handler
            .event("marked for graceful shutdown", marked)
            .await;
        // What virt-handler does then; this guest shuts down.
        pod.shutdown(&vmi).await;
        pod.handler.status("Shutoff").await;
        pod.delete(&vmi).await;
        pod.handler
            .event("final", crate::harness::Event::is_final)
            .await;
        assert_eq!(pod.exit_code().await, 0);
    });
}

#[test]
fn a_guest_that_ignores_the_power_button_is_killed_after_the_grace_period() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("stubborn").with_stubborn_counter(&pod);
        pod.start(&vmi, &["--grace-period-seconds", "3"]).await;
        pod.count(&vmi).await;
        pod.signal("TERM");
        pod.handler
            .event("shut off", |event| {
                event.status() == "Shutoff" || event.is_final()
            })
            .await;
        assert_eq!(pod.exit_code().await, 0);
        assert!(pod.guests().is_empty());
    });
}

/// A parent's signal mask and ignored signals come along with execve(2); some CI runners leave
/// SIGCHLD blocked.
#[tokio::test]
async fn signals_that_the_parent_has_blocked_or_ignores_are_heard() {
    for left in ["--block-signal", "--ignore-signal=CHLD"] {
        let mut pod = Pod::new();
        let vmi = Vmi::new("deaf").with_counter(&pod);
        pod.handler.serve();
        pod.launch_by(Command::new("/usr/bin/env").arg(left), &vmi, &[]);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        pod.end(&vmi).await;
        assert_eq!(pod.exit_code().await, 0, "{left}");
        assert!(pod.guests().is_empty());
    }
    let mut pod = Pod::new();
    let vmi = Vmi::new("deaf");
    pod.handler.serve();
    pod.launch_by(
        Command::new("/usr/bin/env").arg("--block-signal"),
        &vmi,
        &["--grace-period-seconds", "1"],
    );
    pod.wait_until_ready().await;
    pod.signal("TERM");
    assert_eq!(pod.exit_code().await, 0);
}

/// The first process of the pod is this program, whose name the kernel may have cut.
fn runs(pod: &Pod, program: &str) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", pod.first_process()));
    comm.is_ok_and(|comm| program.starts_with(comm.trim_end()))
}

/// Whoever starts the launcher may block the signals that end it, as the monitor does; then none is
/// lost and none kills.
#[tokio::test]
// D-start-3 (docs/differences.md).
async fn a_signal_right_after_the_start_ends_the_launcher_in_order() {
    for (program, delay) in (0..12).map(|number| {
        let programs = ["virt-launcher", "virt-launcher-monitor"];
        (
            programs[number % 2],
            Duration::from_millis(15) * (number / 2) as u32,
        )
    }) {
        let mut pod = Pod::new();
        let mut command = Command::new("/usr/bin/env");
        command.arg("--block-signal=TERM");
        match program {
            "virt-launcher" => pod.launch_by(&mut command, &Vmi::new("early"), &[]),
            _ => pod.launch_monitored_by(&mut command, &Vmi::new("early"), &[]),
        }
        while !runs(&pod, program) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(delay).await;
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 0, "{program} after {delay:?}");
    }
}

/// A QEMU runs that tells libvirt below this root what it can do.
fn probes(root: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .any(|line| line.contains("-machine\0none") && line.contains(root))
}

/// libvirt starts QEMU several times, to learn what it can do, as soon as the launcher serves.
#[tokio::test]
async fn an_end_while_libvirt_probes_qemu_leaves_no_process() {
    for step in 0..12 {
        let mut pod = Pod::new();
        pod.forget_capabilities();
        pod.launch(&Vmi::new("probed"), &[]);
        let root = pod.root().display().to_string();
        pod.until("libvirt probes QEMU", || probes(&root)).await;
        tokio::time::sleep(Duration::from_millis(25) * step).await;
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 0);
        assert_eq!(
            pod.commands(),
            [""; 0],
            "in step {step}\n{}",
            pod.log_tail()
        );
    }
}

/// As where a container is entered from outside, or a build runs in a PID namespace: getsid(2) says
/// 0 then.
#[tokio::test]
async fn the_session_may_have_begun_outside_the_pid_namespace() {
    let mut namespace = vec!["--pid", "--fork", "--mount-proc"];
    if !rustix::process::geteuid().is_root() {
        namespace.push("--map-current-user");
    }
    if !Command::new("unshare")
        .args(&namespace)
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: no PID namespace can be made here");
        return;
    }
    let mut pod = Pod::new();
    let vmi = Vmi::new("inner").with_counter(&pod);
    pod.handler.serve();
    // Neither the first process nor its child, which each reap in their own way.
    let shell = ["sh", "-c", "\"$@\"; exit $?", "sh"];
    pod.launch_by(
        Command::new("unshare")
            .args(&namespace)
            .args(shell)
            .args(shell),
        &vmi,
        &[],
    );
    pod.wait_until_ready().await;
    pod.sync_ok(&vmi).await;
    pod.end(&vmi).await;
    assert_eq!(pod.exit_code().await, 0);
}

#[tokio::test]
async fn a_daemon_that_hangs_does_not_keep_the_pod() {
    let mut pod = Pod::ready(&Vmi::new("hung-end"), &["--libvirt=auto"]).await;
    for pid in pod.libvirt_daemons() {
        let stopped = Command::new("kill")
            .args(["-s", "STOP", &pid.to_string()])
            .status();
        assert!(stopped.unwrap().success());
    }
    pod.signal("TERM");
    assert_eq!(pod.exit_code().await, 0);
    assert_eq!(pod.commands(), [""; 0]);
    // By its keepalive libvirt would find out after 45 s.
    let tail = pod.log_tail();
    assert!(!tail.contains("connection to libvirt is closed"), "{tail}");
}

#[test]
// D-start-3 (docs/differences.md).
fn sigterm_before_there_is_a_domain_ends_the_launcher() {
    in_pod(async {
        let vmi = Vmi::new("early");
        let mut pod = Pod::ready(&vmi, &["--grace-period-seconds", "1"]).await;
        // Libvirt asks a QEMU what it can do, which takes seconds.
        let asked = async {
            while pod.processes("qemu").is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, asked).await.unwrap();
        pod.signal("TERM");
        assert_eq!(pod.exit_code().await, 0);
        assert_eq!(pod.processes("qemu"), [0; 0], "that QEMU has ended too");
    });
}
