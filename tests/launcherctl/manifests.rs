//! `check`, `convert` and `explain`: what they say of a manifest.

use serde_json::Value;

use super::{has, in_repository, json, launcherctl, manifest, stderr, stdout};

#[test]
fn check_finds_nothing_wrong_with_the_examples() {
    for example in ["vmi", "efi", "cdrom", "stubborn", "sidecars/vmi"] {
        let file = in_repository(&format!("examples/{example}.yaml"));
        let output = launcherctl(&format!("check {file}"));
        assert!(output.status.success(), "{}", stdout(&output));
        has(&stdout(&output), &format!("{file}: ok (checked: "));
    }
}

/// An unknown field, a wrong type and a value that is refused.
const BROKEN: &str = "kind: VirtualMachineInstance
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

#[test]
fn check_reports_everything_with_lines_and_fails() {
    let (_dir, file) = manifest(BROKEN);
    let output = launcherctl(&format!("check {file}"));
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
    let json = json(&format!("check {file} -o json"));
    assert_eq!(json[0]["problems"][0]["line"], 5);
}

#[test]
fn check_notes_what_only_a_cluster_knows() {
    let (_dir, file) = manifest(
        "kind: VirtualMachine
metadata: {name: web}
spec:
  runStrategy: Always
  instancetype: {name: u1.medium}
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - {name: root, dataVolume: {name: root}}
",
    );
    let output = launcherctl(&format!("check {file}"));
    let said = stdout(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.starts_with(&format!("{file}:5: note: spec.instancetype: "))
            && said.contains("virtctl expand")
            && said.ends_with(&format!("{file}: ok (checked: fields and types)\n")),
        "{said}"
    );
    let run = launcherctl(&format!("run {file}"));
    assert!(stderr(&run).contains("virtctl expand"), "{}", stderr(&run));
}

#[test]
fn a_field_that_is_dropped_is_said_by_other_verbs_too() {
    let (_dir, file) = manifest(
        "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    ioThreadPolicy: auto
    memory: {guest: 64Mi}
    devices: {}
",
    );
    let output = launcherctl(&format!("convert {file}"));
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
    let output = launcherctl(&format!("explain {vmi} --element devices/disk/drivr"));
    let said = stderr(&output);
    has(&said, "the domain has no such part");
    let output = launcherctl(&format!("explain {vmi} --element devices/disk/driver"));
    assert!(
        stdout(&output).contains("/driver/@name"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn explain_tells_defaults_from_fields_and_gives_lines() {
    let (_dir, file) = manifest(
        "kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    memory:
      guest: 64Mi
    devices: {}
",
    );
    let explained =
        |element: &str| stdout(&launcherctl(&format!("explain {file} --element {element}")));
    let memory = explained("/domain/memory");
    has(&memory, "from spec.domain.memory.guest (line 6)");
    let cores = explained("/domain/cpu/topology");
    has(&cores, "the default of spec.domain.cpu.cores");
    let json = json(&format!("explain {file} -o json"));
    assert_eq!(json["lines"]["spec.domain.memory.guest"], 6);
    assert!(json["lines"]["spec.domain.cpu.cores"].is_null());
}

#[test]
fn the_first_error_of_a_manifest_is_followed_by_how_to_see_all() {
    let (_dir, file) = manifest("kind: VirtualMachineInstance\nmetadata: {name: a}\n");
    let hint = format!("launcherctl check {file} shows all that is wrong");
    let refused = launcherctl(&format!("run {file}"));
    assert!(stderr(&refused).contains(&hint), "{}", stderr(&refused));
    let refused = launcherctl(&format!("-o json run {file}"));
    let error: Value = serde_json::from_str(&stderr(&refused)).unwrap();
    assert_eq!(error["hint"], hint);
}
