//! What others write may be without end, and is read up to a limit.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use super::{has, in_home, in_repository, manifest, refused, stderr, stdout};

/// Runs it with 120 MB of address space.
fn limited(line: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_pod-tools");
    let script = format!("ulimit -v 120000; export MALLOC_ARENA_MAX=1; {line}");
    let script = script.replace("launcherctl", &format!("{program} launcherctl"));
    let mut bash = Command::new("timeout");
    bash.args(["100", "bash", "-c", &script]).output().unwrap()
}

#[test]
fn a_manifest_or_context_is_read_up_to_a_limit() {
    let vmi = in_repository("examples/vmi.yaml");
    for line in [
        "launcherctl check /dev/zero",
        "yes 'a: b' | launcherctl check -",
        "launcherctl run /dev/zero",
        &format!("launcherctl convert {vmi} --context /dev/zero"),
    ] {
        let output = limited(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        has(&stderr(&output), "it has more than 8388608 bytes");
    }
}

#[test]
fn a_manifest_of_many_values_is_refused_before_anything_is_made_of_them() {
    let values = vec!["{}"; 8193].join(",");
    let vmi = format!(r#"{{"kind": "VirtualMachineInstance", "spec": {{"volumes": [{values}]}}}}"#);
    let (_dir, file) = manifest(&vmi);
    has(
        &refused(&format!("convert {file}")),
        "spec.volumes has more than 8192 entries",
    );
}

#[test]
fn a_supervisor_that_sends_a_line_without_end_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = UnixListener::bind(dir.path().join("control.sock")).unwrap();
    std::fs::write(
        dir.path().join("vmi.json"),
        r#"{"metadata": {"name": "a"}}"#,
    )
    .unwrap();
    std::thread::spawn(move || {
        for mut client in supervisor.incoming().flatten() {
            std::thread::spawn(move || while client.write_all(&[b'x'; 65536]).is_ok() {});
        }
    });
    let status = limited(&format!(
        "launcherctl status --root {}",
        dir.path().display()
    ));
    assert!(status.status.success(), "{}", stderr(&status));
    has(&stdout(&status), "starting");
}

#[test]
fn status_neither_waits_for_a_fifo_nor_follows_a_link_in_a_vms_directory() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("vm")).unwrap();
    std::fs::write(at("vm/vmi.json"), r#"{"metadata": {"name": "web"}}"#).unwrap();
    let other = r#"{"reason": "content", "name": "a", "namespace": "b", "uid": "c"}"#;
    std::fs::write(at("others"), other).unwrap();
    symlink(at("others"), at("vm/failure.json")).unwrap();
    for fifo in ["vm/start.json", "vm/console.log"] {
        let made = Command::new("mkfifo").arg(at(fifo)).status();
        assert!(made.unwrap().success());
    }
    let (code, said) = in_home(
        home.path(),
        &format!("status --root {}", at("vm").display()),
    );
    assert!(code == 0 && !said.contains("content"), "{said}");
}
