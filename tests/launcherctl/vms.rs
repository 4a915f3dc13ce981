//! VMs by their names, where none runs: those that have failed, and none at all.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{has, in_home, launcherctl_command, stderr, stdout};

/// Enters a VM that has failed in the registry of this user.
pub fn add_failed(home: &Path, name: &str) {
    let (registry, root) = (home.join("launcherctl"), home.join(name));
    std::fs::create_dir_all(&registry).unwrap();
    std::fs::create_dir(&root).unwrap();
    let failure =
        json!({"reason": "no disk", "name": name, "namespace": "default", "uid": "u"}).to_string();
    std::fs::write(root.join("failure.json"), failure).unwrap();
    std::fs::write(root.join("launcher.log"), "the log of this VM\n").unwrap();
    std::os::unix::fs::symlink(&root, registry.join(name)).unwrap();
}

/// It is shown as failed, and its log is there.
pub fn assert_has_failed(home: &Path, name: &str) {
    let (_, status) = in_home(home, &format!("status {name}"));
    assert!(
        status.starts_with("web: Failed\n") && status.contains(": no disk; "),
        "{status}"
    );
    let log = in_home(home, &format!("logs {name}"));
    assert_eq!(log, (0, "the log of this VM\n".to_owned()));
}

#[test]
fn the_only_vm_needs_no_name_though_it_has_failed() {
    let home = tempfile::tempdir().unwrap();
    let said = |line: &str| in_home(home.path(), line).1;
    add_failed(home.path(), "web");
    assert_has_failed(home.path(), "");
    for verb in ["pause", "launcher ping", "console", "volumes"] {
        has(&said(verb), "web has failed: no disk");
    }
    has(&said("logs --console"), "there is no log at ");

    add_failed(home.path(), "db");
    let several = said("status");
    has(&several, "there are several VMs (");
    // A manifest names its VM.
    let manifest = home.path().join("db.yaml");
    let text = "kind: VirtualMachineInstance\nmetadata: {name: db}\nspec: {domain: {memory: {guest: 64Mi}}}\n";
    std::fs::write(&manifest, text).unwrap();
    let plan = said(&format!("plan {}", manifest.display()));
    has(&plan, "db has failed: no disk");
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
    assert!(outside.starts_with("web: Failed\n"), "{outside}");
    // Process 1 is named as the monitor is.
    let inside = status(
        &["--pid", "--fork", "--mount-proc"],
        &format!("exec -a /usr/bin/virt-launcher-monitor bash -c '{script}; exit' \"$0\" \"$1\""),
    );
    has(&inside, "was killed");
}

#[test]
fn a_relative_xdg_runtime_dir_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("relative")).unwrap();
    let listed = launcherctl_command("list")
        .current_dir(dir.path())
        .env("XDG_RUNTIME_DIR", "relative")
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert!(!dir.path().join("relative/launcherctl").exists());
}

#[test]
fn stop_leaves_a_vm_of_the_same_name_that_it_was_not_told() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    add_failed(home, "web");
    let vmi = |uid: &str| json!({"metadata": {"name": "web", "uid": uid}}).to_string();
    std::fs::write(home.join("web/vmi.json"), vmi("listed")).unwrap();
    let other = home.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("vmi.json"), vmi("unlisted")).unwrap();
    let (status, said) = in_home(home, &format!("stop --root {}", other.display()));
    assert_eq!(status, 0, "{said}");
    assert!(!other.join("vmi.json").exists());
    assert_has_failed(home, "web");
}

#[test]
fn stop_ends_no_vm_but_the_one_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    add_failed(home, "web");
    let path = |name: &str| home.join(name).display().to_string();
    let (web, empty, missing) = (path("web"), path("empty"), path("missing"));
    std::fs::create_dir(&empty).unwrap();
    for (options, why) in [
        (format!("--root {missing}"), "there is no such directory"),
        (format!("--root {empty}"), "no VM in"),
        ("--name db".to_owned(), "no VM named db"),
    ] {
        let (code, text) = in_home(home, &format!("stop --force {options}"));
        assert!(code == 1 && text.contains(why), "{options}: {code} {text}");
    }
    for options in [
        format!("web --root {empty}"),
        format!("--all --root {empty}"),
        format!("web --root {missing}"),
        "web --name db".to_owned(),
    ] {
        assert_eq!(in_home(home, &format!("stop {options}")).0, 2, "{options}");
    }
    assert!(in_home(home, "status web").1.starts_with("web: Failed"));

    add_failed(home, "db");
    let (_, several) = in_home(home, "stop");
    has(&several, "there are several VMs");
    // By any path; the directory is the user's.
    let link = home.join("link");
    std::os::unix::fs::symlink(&web, &link).unwrap();
    let (code, text) = in_home(home, &format!("stop --root {}", link.display()));
    let log = home.join("web/launcher.log");
    let expected = format!("web: had failed; its log stays: {}\n", log.display());
    assert_eq!((code, text), (0, expected));
    assert!(log.exists() && !home.join("web/failure.json").exists());
    assert!(in_home(home, "status db").1.starts_with("db: Failed"));
}

#[test]
fn status_invents_no_vm() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for name in ["missing", "."] {
        let root = home.join(name).display().to_string();
        let (code, text) = in_home(home, &format!("status --root {root}"));
        assert!(
            code == 1 && text.contains("launcherctl: no "),
            "{name}: {text}"
        );
    }
    add_failed(home, "web");
    let root = home.join("web").display().to_string();
    let (_, status) = in_home(home, &format!("status --root {root}"));
    assert!(
        status.starts_with("web: Failed\n") && status.contains(": no disk; "),
        "{status}"
    );
    assert_eq!(in_home(home, &format!("stop --root {root}")).0, 0);
    let (code, text) = in_home(home, &format!("status --root {root}"));
    assert!(
        code == 1 && text.contains("no launcher answers on"),
        "{text}"
    );
}
