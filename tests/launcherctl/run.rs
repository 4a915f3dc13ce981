//! `run` up to the launcher: what is missing, and what is refused.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::vms::add_failed;
use super::{in_repository, launcherctl, launcherctl_command, stderr, stdout};

#[test]
fn run_names_all_that_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: incomplete}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {}
  volumes:
  - {name: root, containerDisk: {image: example.org/root}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings}}
";
    std::fs::write(&file, text).unwrap();
    let root = dir.path().join("root").display().to_string();
    let output = launcherctl(&["run", &file.display().to_string(), "--root", &root]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "--disk root=FILE",
        "--disk data=FILE",
        "--config-map settings=DIR",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let arguments = [
        "-o",
        "json",
        "run",
        &file.display().to_string(),
        "--root",
        &root,
    ];
    let said = stderr(&launcherctl(&arguments));
    let error: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"], "3 problems");
    assert_eq!(error["details"].as_array().unwrap().len(), 3, "{error}");
    assert!(error["hint"].is_null(), "{error}");
}

#[test]
fn run_names_the_option_that_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: misspelt}
spec:
  domain: {memory: {guest: 64Mi}, devices: {}}
  volumes:
  - {name: claim, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings, optional: true}}
";
    std::fs::write(&file, text).unwrap();
    let (file, here) = (file.display().to_string(), dir.path().display().to_string());
    let map = format!("setings={here}");
    let output = launcherctl(&[
        "run",
        &file,
        "--disk",
        "claim=/nonexistent",
        "--config-map",
        &map,
    ]);
    let said = stderr(&output);
    for part in [
        "--disk claim=/nonexistent: cannot find /nonexistent: ",
        "--config-map setings: the VMI refers to no ConfigMap \"setings\"; it refers to settings",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_start_that_is_refused_keeps_what_a_failed_vm_of_that_name_has_left() {
    let home = tempfile::tempdir().unwrap();
    let launcherctl = |arguments: &[&str]| {
        let mut command = launcherctl_command(arguments);
        command.env("XDG_RUNTIME_DIR", home.path());
        command.output().unwrap()
    };
    add_failed(home.path(), "web");
    let vmi = home.path().join("vmi.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain: {memory: {guest: 64Mi}, devices: {}}
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root}}
";
    std::fs::write(&vmi, text).unwrap();
    let vmi = vmi.display().to_string();
    let (own, other) = (home.path().join("web"), home.path().join("other"));
    for root in [None, Some(own), Some(other)] {
        let root = root.map(|root| format!("--root={}", root.display()));
        let mut run = vec!["run", "--network=none", &vmi, "--disk=root=/nonexistent"];
        run.extend(root.as_deref());
        let refused = stderr(&launcherctl(&run));
        assert!(refused.contains("cannot find /nonexistent"), "{refused}");
        let status = stdout(&launcherctl(&["status", "web"]));
        assert!(status.starts_with("web: Failed: no disk\n"), "{status}");
        assert_eq!(
            stdout(&launcherctl(&["logs", "web"])),
            "the log of this VM\n"
        );
    }
}

#[test]
fn a_copy_of_pod_tools_runs_a_vm_and_says_where_a_launcher_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("bin/launcherctl");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_pod-tools"), &copy).unwrap();
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
    assert!(
        said.contains(&missing) && said.contains("--launcher FILE"),
        "{said}"
    );
    let said = run(&["--launcher", "/bin/false"]);
    assert!(said.contains("exit status: 1"), "{said}");
}
