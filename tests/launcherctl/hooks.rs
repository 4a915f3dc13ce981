//! `hooks check` and `hooks try`: sidecars without a launcher, and what is left of them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::{
    done, has, in_repository, json, launcherctl, launcherctl_command, refused, script, stderr,
    stdout,
};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn hooks_check_fails_a_script_that_is_not_idempotent() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh\nprintf '%s\\n' \"$4\" | sed 's|</devices>|<rng model=\"virtio\"/></devices>|'\n";
    let script = script(&dir.path().join("append.sh"), text);
    let output = launcherctl(&format!("launcher hooks check {script}"));
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{table}");
    let failed = |line: &&str| line.starts_with("FAILED");
    assert!(
        table
            .lines()
            .filter(failed)
            .all(|line| line.contains("idempotence"))
            && table.lines().any(|line| failed(&line)),
        "{table}"
    );
    let missing = launcherctl("launcher hooks check /nonexistent");
    has(&stderr(&missing), "/nonexistent");
}

#[test]
fn hooks_check_passes_the_shell_example_with_its_options_before_or_after_it() {
    let sidecar = in_repository("examples/sidecars/smbios-shell");
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let options = format!("--vmi {vmi}");
    let table = done(&format!("launcher hooks check {options} {sidecar}"));
    assert!(table.ends_with("the sidecar passes\n"), "{table}");

    let result = json(&format!("launcher hooks check {sidecar} {options} -o json"));
    assert_eq!(result["passed"], true, "{result}");
    for (extra, said) in [("--blub", "--blub"), ("extra", "gets no arguments")] {
        let output = launcherctl(&format!("launcher hooks check {sidecar} {extra}"));
        assert!(!output.status.success(), "{extra}");
        has(&stderr(&output), said);
    }
}

#[test]
fn hooks_try_and_check_call_pre_cloud_init_iso() {
    let dir = tempfile::tempdir().unwrap();
    let vmi = |name: &str, source: &str| {
        let text = format!(
            "kind: VirtualMachineInstance
metadata: {{name: web}}
spec:
  domain:
    memory: {{guest: 64Mi}}
    devices: {{disks: [{{name: seed, disk: {{bus: virtio}}}}]}}
  volumes:
  - {{name: seed, {source}}}
"
        );
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let with = vmi(
        "with.yaml",
        "cloudInitNoCloud: {userData: '#cloud-config old'}",
    );
    let without = vmi("without.yaml", "emptyDisk: {capacity: 1Mi}");
    let secret = "cloudInitNoCloud: {secretRef: {name: seed}}";
    let missing = vmi("missing.yaml", secret);
    let secret = vmi(
        "secret.yaml",
        &format!(
            "{secret}}}
---
kind: Secret
metadata: {{name: seed}}
stringData: {{userdata: '#cloud-config old'"
        ),
    );
    let hook = dir.path().join("preCloudInitIso");
    let sidecar = dir.path().display().to_string();
    let try_it = |vmi: &str| format!("launcher hooks try --vmi {vmi} --sidecar {sidecar}");

    script(
        &hook,
        "#!/bin/sh\nprintf '%s' \"$4\" | sed 's/config old/config newer/'\n",
    );
    for vmi in [&with, &secret] {
        let tried = done(&try_it(vmi));
        has(&tried, "PreCloudInitIso changes");
        has(&tried, "~ UserData");
    }
    // hooks check calls it with the same data.
    let row = |vmi: &str| {
        let output = launcherctl(&format!("launcher hooks check --vmi {vmi} {sidecar}"));
        let table = stdout(&output);
        let mut rows = table.lines();
        let row = rows.find(|row| row.contains(" preCloudInitIso "));
        row.unwrap_or(&table).to_owned()
    };
    // Without a volume it has examples.
    for (vmi, result) in [(&secret, "ok"), (&missing, "FAILED"), (&without, "ok")] {
        assert!(row(vmi).starts_with(result), "{}", row(vmi));
    }
    let json = json(&format!("{} -o json", try_it(&with)));
    assert_eq!(json["cloudInit"]["UserData"], "#cloud-config newer");
    for (vmi, why) in [
        (&without, "no hook point that a launcher calls for this VMI"),
        (&missing, "need a Secret"),
    ] {
        let output = launcherctl(&try_it(vmi));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        has(&stdout(&output), why);
    }

    for (text, why) in [
        ("echo '[1,2]'", "not a JSON object"),
        ("echo no >&2; exit 3", "exit status 3"),
        (
            "printf '%s' \"$4\" | sed 's/\"VolumeName\":\"seed\"/\"VolumeName\":[1]/'",
            "VolumeName is a list, not a string",
        ),
    ] {
        script(&hook, &format!("#!/bin/sh\n{text}\n"));
        let output = launcherctl(&try_it(&with));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        has(&stdout(&output), "PreCloudInitIso is refused: ");
        has(&stdout(&output), why);
    }
}

#[test]
fn hooks_try_shows_what_a_script_changes_that_fails_with_its_own_result() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh
case \"$4\" in *Me*) echo 'vendor is set' >&2; exit 1;; esac
echo \"$4\" | sed 's|<bios></bios>|<bios><entry name=\"vendor\">Me</entry></bios>|'
";
    let program = script(&dir.path().join("onDefineDomain"), text);
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let output = launcherctl(&format!(
        "launcher hooks try --vmi {vmi} --sidecar {program}"
    ));
    let tried = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{tried}");
    has(&tried, "sysinfo/bios/entry[vendor]");
    has(
        &tried,
        "OnDefineDomain is not idempotent; given its own result",
    );
    has(&tried, "it fails: ");
    has(&tried, "vendor is set");
}

#[test]
fn hooks_try_takes_the_answer_of_a_script_that_leaves_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    // The process keeps the script's standard output, and has no parent when the script has ended.
    let text = format!(
        "#!/bin/sh\n(sleep 1000 & echo $! $! > {})\nprintf '%s' \"$4\"\n",
        pids.display()
    );
    let program = script(&dir.path().join("leaves.sh"), &text);
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    done(&format!(
        "launcher hooks try --vmi {vmi} --sidecar {program}"
    ));
    assert_have_ended(&pids);

    let silent = text.replace("printf '%s' \"$4\"", "exit 0");
    let program = script(&dir.path().join("silent.sh"), &silent);
    let output = launcherctl(&format!(
        "launcher hooks try --vmi {vmi} --sidecar {program}"
    ));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), "left running");
    assert_have_ended(&pids);
}

/// A script at which a sidecar's shim waits; it writes its process ID and that of what it starts.
fn hanging_script(dir: &Path) -> String {
    let text = format!(
        "#!/bin/sh\nsleep 1000 &\necho $$ $! > {}/pids\nwait\n",
        dir.display()
    );
    script(&dir.join("hang.sh"), &text)
}

#[test]
fn hooks_try_leaves_nothing_of_a_sidecar_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let script = hanging_script(dir.path());
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let output = launcherctl(&format!(
        "launcher hooks try --vmi {vmi} --sidecar {script}"
    ));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), "no answer within 20 s");
    assert_have_ended(&dir.path().join("pids"));
}

/// Waits until the processes of a [`hanging_script`] have ended: one that was killed may not be
/// gone at once.
fn assert_have_ended(pids: &Path) {
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2, "{pids}");
    for pid in pids.split_whitespace() {
        let runs = |_| {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let runs = !state.is_empty() && !state.contains(") Z ");
            std::thread::sleep(Duration::from_millis(if runs { 10 } else { 0 }));
            runs
        };
        assert!(!(0..1000).all(runs), "{pid} runs on");
    }
}

#[test]
fn a_signal_to_hooks_try_and_check_leaves_nothing_of_the_sidecar() {
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    for (verb, signal) in [("try", Signal::INT), ("check", Signal::TERM)] {
        let dir = tempfile::tempdir().unwrap();
        let (script, temporary) = (hanging_script(dir.path()), dir.path().join("tmp"));
        std::fs::create_dir(&temporary).unwrap();
        let mut command = launcherctl_command(&format!("launcher hooks {verb} --vmi {vmi}"));
        if verb == "try" {
            command.arg("--sidecar");
        }
        let child = command
            .arg(&script)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pids = dir.path().join("pids");
        let is_called = |_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::read_to_string(&pids).is_ok_and(|pids| pids.ends_with('\n'))
        };
        assert!((0..6000).any(is_called), "the sidecar was not called");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert!(stderr(&output).contains("cancelled"), "{}", stderr(&output));
        assert_have_ended(&pids);
        let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(left.is_empty(), "{verb}: {left:?}");
    }
}

#[test]
fn hooks_fails_where_no_launcher_answers() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().display().to_string();
    for format in ["text", "json"] {
        let error = refused(&format!("launcher hooks --root {root} -o {format}"));
        has(&error, "no launcher answers on");
    }
}

#[test]
fn hooks_try_takes_a_program_as_hooks_check_does() {
    let sidecar = in_repository("examples/sidecars/smbios-shell");
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let changes = done(&format!(
        "launcher hooks try --vmi {vmi} --sidecar {sidecar}"
    ));
    has(&changes, "+ sysinfo/baseBoard");
    let missing = launcherctl(&format!(
        "launcher hooks try --vmi {vmi} --sidecar /nonexistent"
    ));
    has(&stderr(&missing), "cannot find /nonexistent");
}

/// A plugin's program by its name among the examples, which `cargo test` builds.
fn example_plugin() -> String {
    let pod_tools = Path::new(env!("CARGO_BIN_EXE_pod-tools"));
    let program = pod_tools.with_file_name("examples/plugin_multifd");
    assert!(program.exists(), "cargo build --example plugin_multifd");
    program.display().to_string()
}

#[test]
fn hooks_check_and_try_take_a_plugin() {
    let program = example_plugin();
    let table = done(&format!("launcher hooks check --plugin -- {program} {{}}"));
    has(&table, "ok       guestDefinition");
    has(&table, "skipped  preBoot");
    has(&table, "ok       preMigrationSourceIdempotence");
    let mut command = launcherctl_command("launcher hooks check --plugin");
    let output = command.arg(format!("{program} {{}}")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));

    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let mut command = launcherctl_command(&format!(
        "launcher hooks try --plugin --vmi {vmi} -o json --sidecar"
    ));
    let output = command.arg(format!("{program} {{}}")).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    super::schema::check("launcher hooks try", &json);
    let points = json["points"].as_array().unwrap();
    assert_eq!(points[0]["point"], "GuestDefinition", "{json}");
    has(&points[0]["changes"].to_string(), "watchdog");

    let refused = launcherctl("launcher hooks check --plugin -- sleep {}60");
    assert_eq!(refused.status.code(), Some(1));
    has(&stdout(&refused), "FAILED  start");
    // A hook sidecar is not a plugin.
    let sidecar = program.replace("plugin_multifd", "sidecar_watchdog");
    let refused = launcherctl(&format!("launcher hooks check --plugin -- {sidecar} {{}}"));
    assert_eq!(refused.status.code(), Some(1));
    has(
        &stdout(&refused),
        "it serves no hook point of LauncherHookService",
    );
}
