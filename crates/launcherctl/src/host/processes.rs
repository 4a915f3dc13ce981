//! Finds programs, and starts and ends their processes; finds those of a VM whose supervisor was
//! killed: its launcher, QEMU and others that name its directory.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::Child;
use tokio::time::timeout;

use os::process::Process;

/// Between SIGTERM, on which QEMU normally exits at once, and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A VM's processes, by the beginnings of their programs' names.
const PROGRAMS: [&str; 5] = ["virt-launcher", "qemu", "libvirtd", "virtqemud", "virtlogd"];

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

/// Ends the processes. Returns true if there were any. QEMU goes before the launcher, which would
/// not replace it.
pub async fn terminate_all(root: &Path) -> bool {
    let found = terminate_once(root).await;
    // The launcher may have replaced a daemon before it ended itself.
    terminate_once(root).await;
    found
}

async fn terminate_once(root: &Path) -> bool {
    let found = find(root);
    for process in &found {
        let _ = process.signal(Signal::TERM);
    }
    for process in &found {
        if timeout(STOP_GRACE, process.ended()).await.is_err() {
            let _ = process.signal(Signal::KILL);
            // A process that waits for a hanging disk does not exit.
            let _ = timeout(STOP_GRACE, process.ended()).await;
        }
    }
    !found.is_empty()
}

/// PID of the QEMU with the VM's guest, with or without a launcher.
pub fn guest(root: &Path) -> Option<i32> {
    let has_guest = |process: &Process| {
        let arguments = process.arguments().unwrap_or_default();
        // A QEMU that reads capabilities has no guest.
        is_program(&arguments, &["qemu"]) && arguments.iter().any(|it| it.starts_with("guest="))
    };
    find(root).iter().find(|it| has_guest(it)).map(Process::pid)
}

/// The processes with an argument that names the directory, or a path or option below it.
fn find(root: &Path) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(pid).filter(|pid| *pid != getpid())
    });
    let root = root.display().to_string();
    let is_of_vm = |process: &Process| {
        let arguments = process.arguments().unwrap_or_default();
        is_program(&arguments, &PROGRAMS) && arguments.iter().any(|it| names(it, &root))
    };
    let processes = pids.filter_map(|pid| Process::open(pid).ok());
    processes.filter(is_of_vm).collect()
}

/// Whether the program's name begins with one of these.
fn is_program(arguments: &[String], names: &[&str]) -> bool {
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    let program = program.and_then(|name| name.to_str());
    program.is_some_and(|program| names.iter().any(|name| program.starts_with(name)))
}

/// Whether the argument contains the directory's path, and not only as a part of a longer path.
fn names(argument: &str, root: &str) -> bool {
    argument.match_indices(root).any(|(at, _)| {
        let before = argument.get(..at).unwrap_or_default();
        let after = argument.get(at.saturating_add(root.len())..);
        (before.is_empty() || before.ends_with(['=', ',', ':', '"']))
            && after.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ',', '"']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_vms_directory_is_not_this_ones() {
        assert!(names("/tmp/vm-1", "/tmp/vm-1"));
        assert!(names("socket,path=/tmp/vm-1/run/x", "/tmp/vm-1"));
        assert!(names("unix:/tmp/vm-1/run/x", "/tmp/vm-1"));
        assert!(names(r#"{"filename":"/tmp/vm-1/disk.img"}"#, "/tmp/vm-1"));
        assert!(!names("/tmp/vm-12/run", "/tmp/vm-1"));
        assert!(!names("/data/tmp/vm-1/run", "/tmp/vm-1"));
        assert!(!names("path=/data/tmp/vm-1", "/tmp/vm-1"));
    }

    #[test]
    fn only_the_vms_own_programs_are_ended() {
        let is_own = |line: &str| {
            let arguments = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            is_program(&arguments, &PROGRAMS)
        };
        assert!(is_own("/usr/bin/virt-launcher --root /tmp/vm-1"));
        assert!(is_own("/usr/bin/qemu-system-x86_64"));
        // A launcher that migrates has them.
        assert!(is_own("/usr/sbin/libvirtd -f /tmp/vm-1/x.conf"));
        assert!(is_own("/usr/sbin/virtlogd -p /tmp/vm-1/x.pid"));
        assert!(!is_own("less /tmp/vm-1/launcher.log"));
    }

    #[tokio::test]
    async fn a_guest_without_a_launcher_is_found_by_its_directory() {
        use std::os::unix::process::CommandExt;
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(guest(dir.path()), None);
        let start = |name: &str| {
            // Stands for QEMU.
            std::process::Command::new("tail")
                .arg0("qemu-system-x86_64")
                .args(["-f", "/dev/null", name])
                .arg(dir.path().join("log"))
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [start("capabilities"), start("guest=default_web,x=on")];
        let wanted = i32::try_from(children[1].id()).unwrap();
        let mut found = None;
        // Waits until it is QEMU: before, it is a copy of this process.
        while found.is_none() {
            found = guest(dir.path());
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, Some(wanted));
        assert_eq!(guest(dir.path()), None);
    }
}
