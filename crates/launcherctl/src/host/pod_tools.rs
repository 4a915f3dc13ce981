//! Runs this executable as another of its programs.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// This executable as another tool of `pod-tools`, whatever its file is called.
///
/// # Errors
/// Its file is unknown.
pub fn tool(name: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name);
    Ok(command)
}
