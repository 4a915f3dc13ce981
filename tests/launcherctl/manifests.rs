//! `check`, `convert` and `explain`: what they say of a manifest.

use std::path::Path;

use serde_json::Value;

use super::{in_repository, launcherctl, stderr, stdout};

#[test]
fn check_finds_nothing_wrong_with_the_examples() {
    for example in ["vmi", "efi", "cdrom", "stubborn", "sidecars/vmi"] {
        let file = in_repository(&format!("examples/{example}.yaml"));
        let output = launcherctl(&["check", &file]);
        assert!(output.status.success(), "{}", stdout(&output));
        assert_eq!(stdout(&output), format!("{file}: ok\n"));
    }
}

/// A manifest with an unknown field, a wrong type and a value that is refused.
fn broken(dir: &Path) -> String {
    let file = dir.join("broken.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    memroy: {guest: 1Gi}
    memory: {guest: 64Mi}
    cpu: {cores: two}
    devices:
      disks:
      - {name: root, disk: {bus: floppy}}
  volumes:
  - {name: root, emptyDisk: {capacity: 1Gi}}
";
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn check_reports_everything_with_lines_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let file = broken(dir.path());
    let output = launcherctl(&["check", &file]);
    assert_eq!(output.status.code(), Some(1));
    let lines = stdout(&output);
    let starts: Vec<String> = [
        "5: spec.domain.memroy: unknown field; did you mean memory?",
        "7: spec.domain.cpu.cores: expected a whole number",
        "10: spec.domain.devices.disks[0].disk.bus: ",
    ]
    .iter()
    .map(|start| format!("{file}:{start}"))
    .collect();
    assert_eq!(lines.lines().count(), starts.len(), "{lines}");
    for (line, start) in lines.lines().zip(&starts) {
        assert!(line.starts_with(start), "{line}");
    }
    let json: Value =
        serde_json::from_str(&stdout(&launcherctl(&["check", &file, "-o", "json"]))).unwrap();
    assert_eq!(json[0]["problems"][0]["line"], 5);
}

#[test]
fn check_notes_what_only_a_cluster_knows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vm.yaml");
    let text = "kind: VirtualMachine
metadata: {name: web}
spec:
  runStrategy: Always
  instancetype: {name: u1.medium}
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - {name: root, dataVolume: {name: root}}
";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let output = launcherctl(&["check", &file]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.starts_with(&format!("{file}:5: note: spec.instancetype: "))
            && said.contains("virtctl expand")
            && said.lines().count() == 1,
        "{said}"
    );
    let run = launcherctl(&["run", &file]);
    assert!(stderr(&run).contains("virtctl expand"), "{}", stderr(&run));
}

#[test]
fn a_field_that_is_dropped_is_said_by_other_verbs_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    ioThreadPolicy: auto
    memory: {guest: 64Mi}
    devices: {}
";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let output = launcherctl(&["convert", &file]);
    assert!(output.status.success());
    assert_eq!(
        stderr(&output),
        format!(
            "warning: {file}:5: spec.domain.ioThreadPolicy: unknown field; did you mean ioThreadsPolicy?\n"
        )
    );
}

#[test]
fn explain_says_what_is_there_if_an_element_is_not() {
    let vmi = in_repository("examples/vmi.yaml");
    let output = launcherctl(&["explain", &vmi, "--element", "devices/disk/drivr"]);
    let said = stderr(&output);
    assert!(said.contains("did you mean driver?"), "{said}");
    let output = launcherctl(&["explain", &vmi, "--element", "devices/disk/driver"]);
    assert!(
        stdout(&output).contains("/driver/@name"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn explain_tells_defaults_from_fields_and_gives_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    let text = "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    memory:
      guest: 64Mi
    devices: {}
";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let explained = |element: &str| stdout(&launcherctl(&["explain", &file, "--element", element]));
    let memory = explained("/domain/memory");
    assert!(
        memory.contains("from spec.domain.memory.guest (line 6)"),
        "{memory}"
    );
    let cores = explained("/domain/cpu/topology");
    assert!(
        cores.contains("the default of spec.domain.cpu.cores"),
        "{cores}"
    );
    let json: Value =
        serde_json::from_str(&stdout(&launcherctl(&["explain", &file, "-o", "json"]))).unwrap();
    assert_eq!(json["lines"]["spec.domain.memory.guest"], 6);
    assert!(json["lines"]["spec.domain.cpu.cores"].is_null());
}

#[test]
fn the_first_error_of_a_manifest_is_followed_by_how_to_see_all() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.yaml");
    std::fs::write(&file, "kind: VirtualMachineInstance\nmetadata: {name: a}\n").unwrap();
    let file = file.to_str().unwrap();
    let hint = format!("launcherctl check {file} shows all that is wrong");
    let refused = launcherctl(&["run", file]);
    assert!(stderr(&refused).contains(&hint), "{}", stderr(&refused));
    let refused = launcherctl(&["-o", "json", "run", file]);
    let error: Value = serde_json::from_str(&stderr(&refused)).unwrap();
    assert_eq!(error["hint"], hint);
}
