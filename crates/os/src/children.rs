//! The processes whose parent this one is, started by it or come to it as orphans.

use std::fs;

use rustix::process::Pid;

/// The children of all threads: proc_pid_task_children(5). Orphans are the main thread's, which is listed first. Of the
/// others some may be missing when a thread ends just then, for the kernel's list of threads ends there.
#[must_use]
pub fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// What a process was started with, a space between the arguments; empty if it has ended.
#[must_use]
pub fn command_line(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&line)
        .trim_end_matches('\0')
        .replace('\0', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_child_is_seen_with_its_command_line_until_it_is_reaped() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        // Other tests' threads end all the time, and an exec is not over when its caller goes on.
        let seen = (0..1000).any(|_| children().contains(&pid));
        let named = (0..1000).any(|_| command_line(pid) == "/bin/sleep 600");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen && named);
        assert!(!children().contains(&pid));
        assert_eq!(command_line(pid), "");
    }
}
