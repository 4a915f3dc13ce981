//! Completions as a shell asks for them, and man pages.

use std::process::Command;

use super::vms::add_failed;
use super::{done, has, launcherctl, launcherctl_command, stderr, stdout};

/// What a shell is offered for the last of these words.
fn offered(home: &std::path::Path, shell: &str, words: &[&str]) -> String {
    let mut command = launcherctl_command("--");
    command
        .args(words)
        .env("COMPLETE", shell)
        .env("XDG_RUNTIME_DIR", home);
    let last = words.len() - 1;
    // bash and zsh tell which word is meant.
    command.env("_CLAP_COMPLETE_INDEX", last.to_string());
    command
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn verbs_options_values_names_and_files_are_completed() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    add_failed(home, "web-1");
    add_failed(home, "db-1");
    for shell in ["bash", "zsh", "fish"] {
        for (words, expected, other) in [
            (["launcherctl", "sta"].as_slice(), "status", "stop"),
            (&["launcherctl", "pause", "w"], "web-1", "db-1"),
            (&["launcherctl", "plan", "--name", ""], "db-1", "status"),
            (&["launcherctl", "run", "--det"], "--detach", "--disk"),
            (&["launcherctl", "run", "--network", "us"], "user", "none"),
            (&["launcherctl", "launcher", "me"], "metrics", "domain"),
            (
                &["launcherctl", "check", "Cargo.t"],
                "Cargo.toml",
                "README.md",
            ),
        ] {
            let offered = offered(home, shell, words);
            has(&offered, expected);
            assert!(!offered.contains(other), "{shell} {words:?}: {offered}");
        }
    }
}

#[test]
fn a_shell_accepts_the_script_that_asks() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = done(&format!("completion {shell}"));
        has(&script, "COMPLETE");
        let file = dir.path().join(shell);
        std::fs::write(&file, script).unwrap();
        match Command::new(shell).arg(check).arg(&file).output() {
            Ok(checked) => assert_eq!(stderr(&checked), ""),
            Err(_) => eprintln!("skipped: no {shell} here"),
        }
    }
}

#[test]
fn man_pages_are_made_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let written = launcherctl(&format!("manual {}", dir.path().display()));
    assert!(written.status.success(), "{}", stderr(&written));
    let page = std::fs::read_to_string(dir.path().join("launcherctl-run.1")).unwrap();
    has(&page, "\\-\\-detach");
    assert!(!dir.path().join("launcherctl-supervise.1").exists());
    assert!(dir.path().join("launcherctl-launcher-ping.1").exists());
    assert!(!dir.path().join("launcherctl-ping.1").exists());
}
