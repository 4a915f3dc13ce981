//! What processes take up.

use std::path::Path;

use crate::harness::Pod;

/// Of one process, at one moment. Memory is in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub resident: u64,
    pub proportional: u64,
    pub private_dirty: u64,
    pub descriptors: u64,
    pub threads: u64,
    /// Context switches, of all threads.
    pub switches: u64,
}

impl Usage {
    /// Of a process that runs.
    pub fn of(pid: u32) -> Self {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let rollup = read("smaps_rollup");
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let switches = tasks.map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            field(&status, "voluntary_ctxt_switches:")
                + field(&status, "nonvoluntary_ctxt_switches:")
        });
        Self {
            resident: field(&rollup, "Rss:"),
            proportional: field(&rollup, "Pss:"),
            private_dirty: field(&rollup, "Private_Dirty:"),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
                as u64,
            threads: field(&read("status"), "Threads:"),
            switches: switches.sum(),
        }
    }
}

/// The number behind a key at the beginning of a line.
fn field(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    let value = value.and_then(|value| value.split_whitespace().next());
    value.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The processor time in ms of a process, and of its children that have ended.
pub fn processor_time(pid: u32) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // utime, stime, cutime and cstime, counted from the name's closing bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks as f64 * 1000.0 / TICKS_PER_SECOND
}

/// The same of all programs of a pod but its guest.
pub fn programs_time(pod: &Pod) -> f64 {
    let guests = pod.guests();
    let programs = pod.processes("").into_iter();
    programs
        .filter(|pid| !guests.contains(pid))
        .map(processor_time)
        .sum()
}

/// The process runs the program with exactly this name.
pub fn is_named(pid: u32, name: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let program = line.split('\0').next().unwrap_or_default();
    Path::new(program)
        .file_name()
        .is_some_and(|file| file == name)
}

/// The pod's process with exactly this name.
pub fn named(pod: &Pod, name: &str) -> Option<u32> {
    let mut found = pod.processes(name).into_iter();
    found.find(|pid| is_named(*pid, name))
}
