//! `launcherctl` without a launcher: what it says about manifests and sidecars, and with which exit status.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn launcherctl(arguments: &[&str]) -> Output {
    launcherctl_command(arguments).output().unwrap()
}

fn launcherctl_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command
        .arg("launcherctl")
        .args(arguments)
        .stdin(Stdio::null());
    command
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
fn hooks_check_passes_the_shell_example() {
    let dir = tempfile::tempdir().unwrap();
    let junit = dir.path().join("junit.xml").display().to_string();
    let sidecar = in_repository("examples/sidecars/smbios-shell");
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let output = launcherctl(&[
        "hooks",
        "check",
        "--slowest",
        "60000",
        "--vmi",
        &vmi,
        "--junit",
        &junit,
        &sidecar,
    ]);
    let table = stdout(&output);
    assert!(output.status.success(), "{table}{}", stderr(&output));
    assert!(table.ends_with("the sidecar passes\n"), "{table}");
    let junit = std::fs::read_to_string(junit).unwrap();
    assert!(junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn hooks_check_fails_a_script_that_is_not_idempotent() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("append.sh");
    let text = "#!/bin/sh\nprintf '%s\\n' \"$4\" | sed 's|</devices>|<rng model=\"virtio\"/></devices>|'\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let output = launcherctl(&["hooks", "check", "--slowest", "60000", &script]);
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
    let missing = launcherctl(&["hooks", "check", "/nonexistent"]);
    assert!(stderr(&missing).contains("/nonexistent"));
}

#[test]
fn options_of_hooks_check_stand_after_the_program_too() {
    let dir = tempfile::tempdir().unwrap();
    let junit = dir.path().join("after.xml").display().to_string();
    let sidecar = in_repository("examples/sidecars/smbios-shell");
    let after = ["--slowest", "60000", "--junit", &junit, "-o", "json"];
    let output = launcherctl(&[&["hooks", "check", &sidecar], &after[..]].concat());
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["passed"], true, "{result}");
    assert!(std::fs::read_to_string(&junit).unwrap().contains("tests="));
    for (extra, said) in [("--blub", "--blub"), ("extra", "gets no arguments")] {
        let output = launcherctl(&["hooks", "check", &sidecar, extra]);
        assert!(!output.status.success(), "{extra}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

/// Makes an executable file.
fn script(file: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}

#[test]
fn hooks_try_calls_pre_cloud_init_iso() {
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
    let secret = vmi("secret.yaml", "cloudInitNoCloud: {secretRef: {name: seed}}");
    let hook = dir.path().join("preCloudInitIso");
    let sidecar = dir.path().display().to_string();
    let try_it = |vmi: &str, format: &str| {
        launcherctl(&[
            "hooks",
            "try",
            "--vmi",
            vmi,
            "--sidecar",
            &sidecar,
            "-o",
            format,
        ])
    };

    script(
        &hook,
        "#!/bin/sh\nprintf '%s' \"$4\" | sed 's/config old/config newer/'\n",
    );
    let output = try_it(&with, "text");
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("cloud-init data: ~ UserData"), "{text}");
    let json: Value = serde_json::from_str(&stdout(&try_it(&with, "json"))).unwrap();
    assert_eq!(json["cloudInit"]["UserData"], "#cloud-config newer");
    for (vmi, why) in [
        (&without, "no cloud-init volume"),
        (&secret, "needs a Secret"),
    ] {
        let output = try_it(vmi, "text");
        let text = stdout(&output);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(text.contains("PreCloudInitIso was not called: "), "{text}");
        assert!(text.contains(why), "{text}");
    }

    for (text, why) in [
        ("echo '[1,2]'", "not a JSON object"),
        ("echo no >&2; exit 3", "exit status 3"),
        (
            "printf '%s' \"$4\" | sed 's/\"VolumeName\":\"seed\"/\"VolumeName\":[1]/'",
            "cannot be used",
        ),
    ] {
        script(&hook, &format!("#!/bin/sh\n{text}\n"));
        let output = try_it(&with, "text");
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
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
    let output = launcherctl(&["hooks", "try", "--vmi", &vmi, "--sidecar", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_have_ended(&pids);

    let silent = text.replace("printf '%s' \"$4\"", "exit 0");
    let program = script(&dir.path().join("silent.sh"), &silent);
    let output = launcherctl(&["hooks", "try", "--vmi", &vmi, "--sidecar", &program]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("left running"),
        "{}",
        stderr(&output)
    );
    assert_have_ended(&pids);
}

/// A script at which a sidecar's shim waits; it writes its process ID and that of what it starts.
fn hanging_script(dir: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let script = dir.join("hang.sh");
    let text = format!(
        "#!/bin/sh\nsleep 1000 &\necho $$ $! > {}/pids\nwait\n",
        dir.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script.display().to_string()
}

#[test]
fn hooks_try_leaves_nothing_of_a_sidecar_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let script = hanging_script(dir.path());
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let output = launcherctl(&["hooks", "try", "--vmi", &vmi, "--sidecar", &script]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert_have_ended(&dir.path().join("pids"));
}

/// Waits until the processes of a [`hanging_script`] have ended: one that was killed may not be gone at once.
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
        let mut command = launcherctl_command(&["hooks", verb, "--vmi", &vmi]);
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
        let output = launcherctl(&["hooks", "--root", &root, "-o", format]);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let error = stderr(&output);
        assert!(error.contains("no launcher answers on"), "{error}");
    }
}

#[test]
fn hooks_try_takes_a_program_as_hooks_check_does() {
    let sidecar = in_repository("examples/sidecars/smbios-shell");
    let vmi = in_repository("examples/sidecars/vmi.yaml");
    let output = launcherctl(&["hooks", "try", "--vmi", &vmi, "--sidecar", &sidecar]);
    let changes = stdout(&output);
    assert!(output.status.success(), "{changes}{}", stderr(&output));
    assert!(changes.contains("+ sysinfo/baseBoard"), "{changes}");
    let missing = launcherctl(&["hooks", "try", "--vmi", &vmi, "--sidecar", "/nonexistent"]);
    assert!(
        stderr(&missing).contains("cannot find /nonexistent"),
        "{}",
        stderr(&missing)
    );
}

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

/// `-o json`: the last line of standard error.
fn error_as_json(arguments: &[&str], status: i32) -> Value {
    let output = launcherctl(arguments);
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    serde_json::from_str(stderr(&output).lines().last().unwrap()).unwrap()
}

#[test]
fn errors_are_json_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let socket = socket.to_str().unwrap();
    let refused = error_as_json(&["-o", "json", "ping", "--socket", socket], 1);
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains(socket) && error.contains("no such socket"),
        "{error}"
    );
    assert!(refused["hint"].is_null() && refused["details"].is_array());
    // A socket whose launcher was killed.
    drop(UnixListener::bind(socket).unwrap());
    let refused = error_as_json(&["ping", "--socket", socket, "-ojson"], 1);
    assert!(refused["error"].as_str().unwrap().contains("was killed"));
    let misspelt = error_as_json(&["--output=json", "puase"], 2);
    let error = misspelt["error"].as_str().unwrap();
    assert!(error.contains("'puase'"), "{error}");
}

/// Enters a VM that has failed in the registry of this user.
fn add_failed(home: &Path, name: &str) {
    let (registry, root) = (home.join("launcherctl"), home.join(name));
    std::fs::create_dir_all(&registry).unwrap();
    std::fs::create_dir(&root).unwrap();
    let failure =
        json!({"reason": "no disk", "name": name, "namespace": "default", "uid": "u"}).to_string();
    std::fs::write(root.join("failure.json"), failure).unwrap();
    std::fs::write(root.join("launcher.log"), "the log of this VM\n").unwrap();
    std::os::unix::fs::symlink(&root, registry.join(name)).unwrap();
}

#[test]
fn the_only_vm_needs_no_name_though_it_has_failed() {
    let home = tempfile::tempdir().unwrap();
    let launcherctl = |arguments: &[&str]| {
        let mut command = launcherctl_command(arguments);
        command.env("XDG_RUNTIME_DIR", home.path());
        command.output().unwrap()
    };
    add_failed(home.path(), "web");
    let status = stdout(&launcherctl(&["status"]));
    assert!(status.starts_with("web: Failed: no disk\n"), "{status}");
    assert_eq!(stdout(&launcherctl(&["logs"])), "the log of this VM\n");
    for verb in ["pause", "ping", "console", "volumes", "watch"] {
        let error = stderr(&launcherctl(&[verb]));
        assert!(error.contains("web has failed: no disk"), "{verb}: {error}");
    }
    let console = stderr(&launcherctl(&["logs", "--console"]));
    assert!(console.contains("no log of a serial console"), "{console}");
    let other = stderr(&launcherctl(&["status", "-n", "other"]));
    assert!(other.contains("no VM of namespace other"), "{other}");

    add_failed(home.path(), "db");
    let several = stderr(&launcherctl(&["status"]));
    assert!(
        several.contains("none of the VMs here is running (")
            && several.contains("--name chooses one"),
        "{several}"
    );
}

#[test]
fn the_socket_of_a_killed_launcher_is_a_pods_only_in_a_pod() {
    let dir = tempfile::tempdir().unwrap();
    let (home, run) = (dir.path().join("home"), dir.path().join("run"));
    let sockets = run.join("kubevirt/sockets");
    std::fs::create_dir_all(&sockets).unwrap();
    // Nobody serves it any more.
    drop(UnixListener::bind(sockets.join("launcher-sock")).unwrap());
    add_failed(&home, "web");
    let status = |namespaces: &[&str], script: &str| {
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount"])
            .args(namespaces)
            .args(["bash", "-c", script, env!("CARGO_BIN_EXE_pod-tools")])
            .arg(&run)
            .env("XDG_RUNTIME_DIR", &home)
            .output()
            .unwrap();
        stdout(&output) + &stderr(&output)
    };
    let script = r#"mount --bind "$1" /var/run && "$0" launcherctl status"#;
    let outside = status(&[], script);
    if outside.contains("unshare: ") || outside.contains("mount: ") {
        eprintln!("skipped: no user namespaces here: {outside}");
        return;
    }
    assert!(outside.starts_with("web: Failed: no disk\n"), "{outside}");
    // Process 1 is named as the monitor is.
    let inside = status(
        &["--pid", "--fork", "--mount-proc"],
        &format!("exec -a /usr/bin/virt-launcher-monitor bash -c '{script}; exit' \"$0\" \"$1\""),
    );
    assert!(inside.contains("was killed"), "{inside}");
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

#[test]
fn the_name_of_a_vm_is_not_taken_for_a_file() {
    let registry = tempfile::tempdir().unwrap();
    let vm = tempfile::tempdir().unwrap();
    let names = registry.path().join("launcherctl");
    std::fs::create_dir(&names).unwrap();
    std::os::unix::fs::symlink(vm.path(), names.join("demo")).unwrap();
    for verb in ["plan", "sync", "convert", "explain"] {
        let mut command = launcherctl_command(&[verb, "demo"]);
        let output = command.env("XDG_RUNTIME_DIR", registry.path()).output();
        let error = stderr(&output.unwrap());
        assert!(
            error.contains("a VM of this name: the argument is a manifest's file"),
            "{error}"
        );
    }
}

/// Runs it with a registry of its own, and returns the exit status and what it has printed.
fn in_home(home: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = launcherctl_command(arguments);
    let output = command.env("XDG_RUNTIME_DIR", home).output().unwrap();
    (
        output.status.code().unwrap(),
        stdout(&output) + &stderr(&output),
    )
}

#[test]
fn stop_ends_no_vm_but_the_one_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    add_failed(home, "web");
    let path = |name: &str| home.join(name).display().to_string();
    let (web, empty, missing) = (path("web"), path("empty"), path("missing"));
    std::fs::create_dir(&empty).unwrap();
    for (options, status, why) in [
        (["--root", &missing], 1, "there is no such directory"),
        (["--root", &empty], 1, "no VM in"),
        (["--socket", &missing], 1, "not its socket"),
        (["--name", "db"], 1, "no VM named db"),
        (["-n", "other"], 1, "no VM of namespace other"),
    ] {
        let [option, value] = options;
        let (code, text) = in_home(home, &["stop", "--force", option, value]);
        assert!(
            code == status && text.contains(why),
            "{options:?}: {code} {text}"
        );
    }
    for line in [
        ["stop", "web", "--root", &empty].as_slice(),
        &["stop", "--all", "--root", &empty],
        &["stop", "web", "--socket", &missing],
        &["stop", "web", "--name", "db"],
    ] {
        assert_eq!(in_home(home, line).0, 2, "{line:?}");
    }
    let other = in_home(home, &["stop", "web", "-n", "other"]);
    assert!(other.1.contains("not in namespace"), "{other:?}");
    assert_eq!(
        in_home(home, &["stop", "--all", "-n", "other"]),
        (0, "there is no VM to stop\n".to_owned())
    );
    assert!(
        in_home(home, &["status", "web"])
            .1
            .starts_with("web: Failed")
    );

    add_failed(home, "db");
    let (_, several) = in_home(home, &["stop"]);
    assert!(several.contains("there are several VMs"), "{several}");
    // By any path; the directory is the user's.
    let link = home.join("link");
    std::os::unix::fs::symlink(&web, &link).unwrap();
    let (code, text) = in_home(home, &["stop", "--root", link.to_str().unwrap()]);
    let log = home.join("web/launcher.log");
    let expected = format!("web: had failed; its log stays: {}\n", log.display());
    assert_eq!((code, text), (0, expected));
    assert!(log.exists() && !home.join("web/failure.json").exists());
    assert!(in_home(home, &["status", "db"]).1.starts_with("db: Failed"));
}

#[test]
fn status_invents_no_vm() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for name in ["missing", "."] {
        let root = home.join(name).display().to_string();
        let (code, text) = in_home(home, &["status", "--root", &root]);
        assert!(code == 1 && text.contains("no VM in"), "{name}: {text}");
    }
    add_failed(home, "web");
    let root = home.join("web").display().to_string();
    let (_, status) = in_home(home, &["status", "--root", &root]);
    assert!(status.starts_with("web: Failed: no disk\n"), "{status}");
    assert_eq!(in_home(home, &["stop", "--root", &root]).0, 0);
    let (code, text) = in_home(home, &["status", "--root", &root]);
    assert!(code == 1 && text.contains("no VM in"), "{text}");
}

#[test]
fn watch_makes_no_directory() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("missing");
    let (code, text) = in_home(home.path(), &["watch", "--root", root.to_str().unwrap()]);
    assert!(
        code == 1 && text.contains("there is no such directory"),
        "{text}"
    );
    assert!(!root.exists());
}

#[test]
fn debug_of_a_failed_vm_has_its_logs() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    add_failed(home, "web");
    std::fs::write(home.join("web/console.log"), "Kernel panic\n").unwrap();
    let archive = home.join("web.tar.gz").display().to_string();
    let (code, text) = in_home(home, &["debug", "--name", "web", "--out", &archive]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("missing: web has failed: no disk"), "{text}");
    let read = |name: &str| {
        let file = format!("launcher-debug/{name}");
        let output = Command::new("tar")
            .args(["-xOzf", &archive, &file])
            .output();
        stdout(&output.unwrap())
    };
    assert_eq!(read("launcher.log"), "the log of this VM\n");
    assert_eq!(read("console.log"), "Kernel panic\n");
    assert!(read("status.json").contains("no disk"));
    assert!(read("problems.txt").contains("domain XML"));
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

#[test]
fn completions_and_man_pages_are_made_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let script = stdout(&launcherctl(&["completion", "bash"]));
    assert!(script.contains("--detach"));
    let file = dir.path().join("completion");
    std::fs::write(&file, script).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&file).output();
    assert_eq!(stderr(&checked.unwrap()), "");
    let written = launcherctl(&["manual", dir.path().to_str().unwrap()]);
    assert!(written.status.success(), "{}", stderr(&written));
    let page = std::fs::read_to_string(dir.path().join("launcherctl-run.1")).unwrap();
    assert!(page.contains("\\-\\-detach"), "{page}");
    assert!(!dir.path().join("launcherctl-supervise.1").exists());
}
