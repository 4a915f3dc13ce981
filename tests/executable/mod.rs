//! Executable files of tests, written by other processes. A child has the files of its parent open
//! until its exec(2): what a test has written itself cannot be executed while another test starts a
//! program (`Text file busy`).
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script, or replaces it.
pub fn write_script(file: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(file);
    let mut install = install.stdin(Stdio::piped()).spawn().unwrap();
    let mut script = install.stdin.take().unwrap();
    script.write_all(text.as_bytes()).unwrap();
    drop(script);
    assert!(install.wait().unwrap().success(), "{}", file.display());
}

pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(copied.unwrap().success(), "{}", to.display());
}
