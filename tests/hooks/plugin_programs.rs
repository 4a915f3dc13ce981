//! Programs of plugins: what a check and a trial say of them, and what is left of them.

use std::path::Path;
use std::time::Duration;

use crate::support::{VMI, built_example};
use hooks::conformance::{Check, Conformance, Limits, Outcome, Subject, check};
use hooks::plugins::TrialPod;
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

async fn checked(command: impl FnOnce(&TrialPod) -> Command) -> Conformance {
    let root = tempfile::tempdir().unwrap();
    let pod = TrialPod::new(root.path(), None).unwrap();
    let subject = Subject {
        command: command(&pod),
        socket_dir: pod.socket_dir(),
        vmi_json: Bytes::from_static(VMI.as_bytes()),
        domain_xml: XML.to_owned(),
        plugin: Some(pod),
    };
    let limits = Limits {
        start: LONG,
        call: LONG,
        slowest: LONG,
        stop: LONG,
    };
    check(subject, limits).await
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
