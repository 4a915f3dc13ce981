//! Shell completions and man pages.

use std::process::Command;

use super::{done, has, launcherctl, stderr};

#[test]
fn a_shell_accepts_the_script() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = done(&format!("completion {shell}"));
        has(&script, "--detach");
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
