//! A check and a trial of a plugin's program: what they report, and that they leave no process.

use std::path::Path;
use std::time::Duration;

use crate::support::{VMI, built_example};
use hooks::conformance::{
    CallLimits, Check, CloudInit, Conformance, Outcome, Subject, TrialPod, check,
};
use hooks::dry_run::{DryRun, dry_run};
use prost::bytes::Bytes;
use tokio::process::Command;

const XML: &str = "<domain type=\"kvm\"><name>ns_vm</name><devices></devices></domain>";
/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Serves nothing, and ends with 3 in its first call, a while after its sockets have closed.
const ENDS_IN_A_CALL: &str = r#"
import os, socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1] + "/hook.sock")
server.listen()
size = 0
while size < 300:
    connection, _ = server.accept()
    size, data = 0, b"x"
    while data and size < 300:
        data = connection.recv(4096)
        size += len(data)
connection.close()
server.close()
time.sleep(0.1)
sys.exit(3)
"#;

/// A shell's command, with the socket's directory and the path of an example plugin.
fn shell(script: &str, pod: &TrialPod) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(pod.socket_dir());
    command.arg(built_example("plugin_multifd"));
    command
}

fn python(text: &str, pod: &TrialPod) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", text]).arg(pod.socket_dir());
    command
}

fn subject(
    root: &Path,
    command: impl FnOnce(&TrialPod) -> Command,
    vmi: &'static str,
) -> (Command, Subject) {
    let pod = TrialPod::new(root, None).unwrap();
    let command = command(&pod);
    let subject = Subject {
        socket_dir: pod.socket_dir(),
        vmi_json: Bytes::from_static(vmi.as_bytes()),
        domain_xml: XML.to_owned(),
        cloud_init: CloudInit::Examples,
        plugin: Some(pod),
    };
    (command, subject)
}

async fn checked(command: impl FnOnce(&TrialPod) -> Command) -> Conformance {
    let root = tempfile::tempdir().unwrap();
    let limits = CallLimits {
        start: LONG,
        call: LONG,
        stop: LONG,
    };
    let (command, subject) = subject(root.path(), command, VMI);
    check(command, subject, limits).await
}

/// Whether a killed process is gone, at last.
fn ends(pid: &str) -> bool {
    (0..1000).any(|_| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_gone = state.is_empty() || state.contains(") Z ");
        std::thread::sleep(Duration::from_millis(if is_gone { 0 } else { 10 }));
        is_gone
    })
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_check_leaves_no_process_in_a_session_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let script = format!(
        "setsid sleep 1000 >/dev/null 2>&1 & echo $! >{}; exec \"$2\" \"$1\"",
        pid.display()
    );
    let table = checked(|pod| shell(&script, pod)).await;
    assert!(table.passed(), "{table:?}");
    assert!(ends(&read(&pid)), "{} runs on", read(&pid));
}

#[tokio::test]
async fn a_program_that_ends_in_a_call_has_failed_there() {
    let table = checked(|pod| python(ENDS_IN_A_CALL, pod)).await;
    for point in [Check::GuestDefinition, Check::PreBoot] {
        let mut results = table.results.iter();
        let result = results.find(|result| result.check == point).unwrap();
        let Outcome::Failed(why) = &result.outcome else {
            panic!("{result:?}")
        };
        let expected = "the program ended: exit status: 3: ";
        assert!(why.starts_with(expected), "{point:?}: {why}");
    }
}

async fn tried(command: impl FnOnce(&TrialPod) -> Command, vmi: &'static str) -> DryRun {
    let root = tempfile::tempdir().unwrap();
    let (command, subject) = subject(root.path(), command, vmi);
    dry_run(command, subject, LONG).await.unwrap()
}

const SERVE: &str = "exec \"$2\" \"$1\"";

#[tokio::test]
async fn a_trial_shows_all_points_with_a_refused_one() {
    let vmi = r#"{"metadata":{"labels":{"storage":"frozen"}}}"#;
    let run = tried(|pod| shell(SERVE, pod), vmi).await;
    let [definition, migration] = &run.points[..] else {
        panic!("{run:?}")
    };
    assert!(definition.refused.is_none() && !definition.changes.is_empty());
    let why = migration.refused.as_deref().unwrap();
    assert!(why.starts_with("plugin under-test hook 0 failed"), "{why}");
    assert!(why.ends_with("its storage must not move"), "{why}");
    assert!(!run.passed());

    let run = tried(|pod| shell(SERVE, pod), VMI).await;
    assert!(run.passed(), "{run:?}");
}

#[tokio::test]
async fn a_trial_blames_the_point_at_which_the_program_ended() {
    let run = tried(|pod| python(ENDS_IN_A_CALL, pod), VMI).await;
    let why: Vec<_> = run.points.iter().map(|point| &point.refused).collect();
    assert_eq!(why.len(), 3);
    for why in why {
        let why = why.as_deref().unwrap_or_default();
        assert!(
            why.starts_with("the program ended: exit status: 3"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_trial_fails_for_a_program_that_serves_no_point() {
    let sidecar = built_example("sidecar_watchdog");
    let serve = |pod: &TrialPod| {
        let mut command = Command::new(sidecar);
        command.arg(pod.socket_dir());
        command
    };
    let run = tried(serve, VMI).await;
    assert!(run.points.is_empty() && !run.passed());
}
