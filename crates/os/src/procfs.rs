//! Processes in `/proc`.

use std::{fs, io};

use rustix::process::Pid;

/// The processes whose parent this one is, those started by it and orphans that came to it:
/// proc_pid_task_children(5) of all threads. Orphans are the main thread's, which is listed first;
/// of the others some may be missing when a thread ends just then, as the kernel's list of threads
/// ends there.
#[must_use]
pub fn children() -> Vec<Pid> {
    children_of("self")
}

/// The children of a process, their children, and so on, as they are now; parents come first.
#[must_use]
pub fn descendants(pid: Pid) -> Vec<Pid> {
    let mut found = children_of(&pid.as_raw_nonzero().to_string());
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        let children = children_of(&pid.as_raw_nonzero().to_string());
        // One that has just ended may have left its number to another process.
        let new = children.into_iter().filter(|child| !found.contains(child));
        let new: Vec<Pid> = new.collect();
        found.extend(new);
        next += 1;
    }
    found
}

fn children_of(process: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
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

/// The command line of a process, argument by argument; empty for a zombie.
///
/// # Errors
/// If it has ended.
pub fn arguments(pid: Pid) -> io::Result<Vec<String>> {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))?;
    let line = String::from_utf8_lossy(&line);
    Ok(line.split_terminator('\0').map(str::to_owned).collect())
}

/// The command line of a process with a space between the arguments; empty if it has ended.
#[must_use]
pub fn command_line(pid: Pid) -> String {
    arguments(pid).unwrap_or_default().join(" ")
}

/// What a process takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub resident_bytes: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl Usage {
    #[must_use]
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key));
            let digits = value.unwrap_or_default().trim().trim_end_matches(" kB");
            digits.parse().unwrap_or(0_u64)
        };
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self {
            resident_bytes: number("VmRSS:").saturating_mul(1024),
            // Without the one that reads the directory.
            descriptors: (descriptors as u64).saturating_sub(1),
            threads: number("Threads:"),
        }
    }
}

/// Fields of proc_pid_stat(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// All its threads have ended, and its parent has not waited for it yet. With the first one
    /// alone it still has its children and its files.
    pub is_zombie: bool,
    /// 0 if the session began outside this PID namespace.
    pub session: i32,
}

impl Stat {
    /// Reads a process's fields; `None` if it has ended and was reaped.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
    }

    /// The first thread's state is the third field, the session the sixth, the number of threads
    /// the twentieth; the second is in brackets and may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let first_has_ended = fields.next()? == "Z";
        let session = fields.nth(2)?.parse().ok()?;
        let threads: u32 = fields.nth(13)?.parse().ok()?;
        Some(Self {
            is_zombie: first_has_ended && threads <= 1,
            session,
        })
    }
}

/// `memory.events` of the cgroup of a process in `/proc`; empty if it cannot be read.
#[must_use]
pub fn memory_events(process: &str) -> String {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let events = format!("/sys/fs/cgroup{}/memory.events", group.unwrap_or_default());
    fs::read_to_string(events).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_with_its_command_line_until_it_is_reaped() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        // Other tests' threads end all the time, and an exec is not over when its caller goes on:
        // on a busy machine that may take a while.
        let comes_true = |is_true: &dyn Fn() -> bool| {
            (0..30_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                is_true()
            })
        };
        let seen = comes_true(&|| children().contains(&pid));
        let named = comes_true(&|| command_line(pid) == "/bin/sleep 600");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen && named);
        assert!(!children().contains(&pid));
        assert_eq!(command_line(pid), "");
    }

    #[test]
    fn a_process_takes_something_up() {
        let usage = Usage::of_this_process();
        assert!(usage.resident_bytes > 4096 && usage.descriptors > 0 && usage.threads > 0);
    }

    #[test]
    fn a_zombie_has_no_thread_left_and_a_name_may_hold_anything() {
        let stat = |is_zombie, session| Some(Stat { is_zombie, session });
        let of = |start: &str, threads: u32| {
            Stat::parse(&format!(
                "42 ({start} 1 40 39 0 -1 4227084 1990 0 0 0 4 0 0 0 20 0 {threads} 0 3029354"
            ))
        };
        assert_eq!(of("a) Z 1 7) S", 1), stat(false, 39));
        assert_eq!(of("qemu) Z", 1), stat(true, 39));
        assert_eq!(of("qemu) Z", 2), stat(false, 39));
        assert_eq!(Stat::parse("42 (qemu) Z 1 40 39 0"), None);
    }
}
