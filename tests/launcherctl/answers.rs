//! `-o json`: what launcherctl prints without a launcher is as its schema describes it.

use super::vms::add_failed;
use super::{has, in_home, in_repository, json, launcherctl, manifest, schema};

#[test]
fn answers_about_manifests_are_as_described() {
    let vmi = in_repository("examples/vmi.yaml");
    let (_dir, broken) = manifest("kind: VirtualMachineInstance\nmetadata: {nam: a}\n");
    schema::check("check", &json(&format!("check {vmi} {broken} -o json")));
    schema::check("convert", &json(&format!("convert {vmi} -o json")));
    schema::check("explain", &json(&format!("explain {vmi} -o json")));
    let hooks = in_repository("examples/sidecars/smbios-shell");
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let tried = format!("launcher hooks try --vmi {vmi} --sidecar {hooks} -o json");
    schema::check("launcher hooks try", &json(&tried));
}

#[test]
fn json_has_no_character_that_a_terminal_obeys() {
    let (dir, _) = manifest("kind: none\n");
    let file = dir.path().join("a\u{9b}31m\u{202e}");
    std::fs::rename(dir.path().join("manifest.yaml"), &file).unwrap();
    for verb in ["check", "convert"] {
        let output = launcherctl(&format!("-o json {verb} {}", file.display()));
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        has(&text, r"31m");
        assert!(!text.contains(['\u{9b}', '\u{202e}']), "{text:?}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}

#[test]
fn answers_about_vms_that_do_not_run_are_as_described() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let answer = |line: &str| {
        let (_, text) = in_home(home, line);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    };
    schema::check("list", &answer("list -o json"));
    schema::check("error", &answer("stop -o json"));
    add_failed(home, "web");
    schema::check("list", &answer("list -o json"));
    schema::check("status", &answer("status web -o json"));
    schema::check("stop", &answer("stop web -o json"));
}

#[test]
fn an_error_is_an_object() {
    let home = tempfile::tempdir().unwrap();
    let (_, text) = in_home(home.path(), "stop -o json");
    let error: serde_json::Value = serde_json::from_str(&text).unwrap();
    has(
        error["error"].as_str().unwrap(),
        "launcherctl run FILE starts one",
    );
    schema::check("error", &error);
}
