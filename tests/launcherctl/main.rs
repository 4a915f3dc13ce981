//! `launcherctl` without a launcher: what it says about manifests and sidecars, and with which exit
//! status.

mod answers;
mod completion;
#[path = "../executable/mod.rs"]
mod executable;
mod field;
mod hooks;
mod kubevirt_examples;
mod libvirt;
mod manifests;
mod run;
mod schema;
mod vms;
mod without_end;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `launcherctl` with the words of this line.
fn launcherctl(line: &str) -> Output {
    launcherctl_command(line).output().unwrap()
}

fn launcherctl_command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command.arg("launcherctl").args(line.split_whitespace());
    command.stdin(Stdio::null());
    command
}

/// What it prints when it succeeds.
#[track_caller]
fn done(line: &str) -> String {
    let output = launcherctl(line);
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}{}", stderr(&output));
    printed
}

/// What it says on standard error when it fails with status 1.
#[track_caller]
fn refused(line: &str) -> String {
    let output = launcherctl(line);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    stderr(&output)
}

/// What it prints, which is JSON.
fn json(line: &str) -> Value {
    let output = launcherctl(line);
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The text has this part.
#[track_caller]
fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

/// A manifest in a directory of its own: the directory and the file.
fn manifest(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("manifest.yaml");
    std::fs::write(&file, text).unwrap();
    (dir, file.display().to_string())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn in_repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    path.display().to_string()
}

/// Makes an executable file.
fn script(file: &Path, text: &str) -> String {
    executable::write_script(file, text);
    file.display().to_string()
}

/// Runs it with a registry of its own, and returns the exit status and what it has printed.
fn in_home(home: &Path, line: &str) -> (i32, String) {
    let mut command = launcherctl_command(line);
    let output = command.env("XDG_RUNTIME_DIR", home).output().unwrap();
    (
        output.status.code().unwrap(),
        stdout(&output) + &stderr(&output),
    )
}

/// `-o json`: the last line of standard error.
fn error_as_json(line: &str, status: i32) -> Value {
    let output = launcherctl(line);
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    serde_json::from_str(stderr(&output).lines().last().unwrap()).unwrap()
}

#[test]
fn errors_are_json_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let sockets = dir.path().join("var/run/kubevirt/sockets");
    std::fs::create_dir_all(&sockets).unwrap();
    let socket = sockets.join("launcher-sock");
    let refused = error_as_json(&format!("-o json launcher ping --root {root}"), 1);
    let error = refused["error"].as_str().unwrap();
    has(error, socket.to_str().unwrap());
    has(error, "no such socket");
    has(error, "launcherctl list shows the VMs of run");
    assert!(refused["details"].is_array());
    // A socket whose launcher was killed.
    drop(UnixListener::bind(socket).unwrap());
    let refused = error_as_json(&format!("launcher ping --root {root} -ojson"), 1);
    assert!(refused["error"].as_str().unwrap().contains("was killed"));
}

#[test]
fn without_a_verb_the_help_is_shown_as_it_is() {
    let output = launcherctl("");
    let help = stdout(&launcherctl("--help"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output).trim(), help.trim());
}
