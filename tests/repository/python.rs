//! The Python in the repository has its own tests, which need neither root nor anything of
//! `KubeVirt`.

use std::process::Command;

use super::root;

#[test]
fn the_tests_of_the_compatibility_kit_pass() {
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "discover", "compat/tests"]);
    let Ok(output) = tests.current_dir(root()).output() else {
        eprintln!("skipped: python3 is not installed");
        return;
    };
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
}
