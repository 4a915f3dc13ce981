//! `run` up to the launcher: what is missing, and what is refused.

use std::process::{Command, Stdio};

use super::executable::copy_program;
use super::{error_as_json, has, in_home, in_repository, manifest, refused, script, stderr};

#[test]
fn run_names_all_that_is_missing() {
    let (dir, file) = manifest(
        "kind: VirtualMachineInstance
metadata: {name: incomplete}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {}
  volumes:
  - {name: root, containerDisk: {image: example.org/root}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings}}
",
    );
    let run = format!("run {file} --root {}/root", dir.path().display());
    let said = refused(&run);
    for part in [
        "--disk root=FILE",
        "--disk data=FILE",
        "--config-map settings=DIR",
    ] {
        has(&said, part);
    }
    let error = error_as_json(&format!("-o json {run}"), 1);
    assert_eq!(error["error"], "3 problems");
    assert_eq!(error["details"].as_array().unwrap().len(), 3, "{error}");
    assert!(error["hint"].is_null(), "{error}");
}

#[test]
fn run_names_the_option_that_is_wrong() {
    let (_dir, file) = manifest(
        "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: misspelt}
spec:
  domain: {memory: {guest: 64Mi}, devices: {}}
  volumes:
  - {name: claim, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings, optional: true}}
",
    );
    let said = refused(&format!(
        "run {file} --disk claim=/nonexistent --config-map settings=/nonexistent"
    ));
    for option in ["--disk claim", "--config-map settings"] {
        has(&said, &format!("{option}=/nonexistent: cannot "));
    }
    assert!(!said.contains("is run"), "{said}");
}

#[test]
fn run_refuses_an_interface_whose_binding_no_cluster_has() {
    let (_dir, file) = manifest(
        "kind: VirtualMachineInstance
metadata: {name: slow}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {interfaces: [{name: default, slirp: {}}]}
  networks: [{name: default, pod: {}}]
",
    );
    let said = refused(&format!("run {file}"));
    has(
        &said,
        "interfaces[0]: KubeVirt no longer has the binding slirp; ",
    );
}

#[test]
fn a_copy_of_pod_tools_runs_a_vm_and_says_where_a_launcher_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("bin/launcherctl");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    copy_program(env!("CARGO_BIN_EXE_pod-tools"), &copy);
    let image = dir.path().join("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let run = |more: &[&str]| {
        let output = Command::new(&copy)
            .args(["run", &in_repository("examples/vmi.yaml"), "--disk"])
            .arg(format!("rootdisk={}", image.display()))
            .args(more)
            .env("XDG_RUNTIME_DIR", dir.path())
            .env("TMPDIR", dir.path())
            .env("PATH", "/nonexistent")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        stderr(&output)
    };
    let said = run(&[]);
    let missing = format!(
        "there is no {}",
        copy.with_file_name("virt-launcher").display()
    );
    has(&said, &missing);
    has(&said, "--launcher FILE");
    let said = run(&["--launcher", "/bin/false"]);
    has(&said, "exit status: 1");
    assert!(!said.contains("log"), "it has left none: {said}");
}

#[test]
fn a_start_that_fails_leaves_the_logs_that_it_names() {
    let home = tempfile::tempdir().unwrap();
    let (dir, image) = (home.path().join("vm"), home.path().join("disk.img"));
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let line = r#"{"level":"fatal","msg":"no such machine"}"#;
    let launcher = format!("#!/bin/sh\necho '{line}' >&2\nexit 1\n");
    let launcher = script(&home.path().join("launcher"), &launcher);
    let (vmi, image) = (in_repository("examples/vmi.yaml"), image.display());
    let run = format!(
        "run {vmi} --network=none --root {} --disk rootdisk={image} --launcher {launcher}",
        dir.display()
    );
    let (code, said) = in_home(home.path(), &run);
    let log = dir.join("launcher.log");
    has(&said, &format!("the launcher's log: {}", log.display()));
    has(&said, "(exit status: 1): no such machine");
    assert!(code == 1 && log.exists(), "{said}");
    let (_, status) = in_home(home.path(), "status demo");
    has(&status, "  problem    the VM has failed (since ");
    has(
        &status,
        "): the launcher ended before it was ready (exit status: 1): no such machine; launcherctl run with its manifest ",
    );
}
