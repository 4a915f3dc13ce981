//! Finds programs, and starts and ends their processes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

/// This executable as another tool of `pod-tools`, whatever its file is called.
///
/// # Errors
/// Its file is unknown.
pub fn tool(name: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name);
    Ok(command)
}

/// Asks a process to end, unless it has.
pub fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| pid.try_into().ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Whether this user may run the file.
pub fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// The program of this name on the search path.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| is_executable(file))
}
