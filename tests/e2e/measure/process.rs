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

/// The processor time in ms of a pod's processes, and of those that have ended; but the guest's.
pub fn processor_time(pod: &Pod) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let guests = pod.guests();
    let of_process = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // utime, stime, cutime and cstime, counted from the name's closing bracket.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(4);
        ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    };
    let programs = pod.processes("").into_iter();
    let ticks: u64 = programs
        .filter(|pid| !guests.contains(pid))
        .map(of_process)
        .sum();
    ticks as f64 * 1000.0 / TICKS_PER_SECOND
}

/// The pod's process with exactly this name.
pub fn named(pod: &Pod, name: &str) -> Option<u32> {
    let is_named = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = String::from_utf8_lossy(&line)
            .split('\0')
            .next()
            .unwrap_or_default()
            .to_owned();
        Path::new(&program)
            .file_name()
            .is_some_and(|file| file == name)
    };
    pod.processes(name).into_iter().find(is_named)
}
