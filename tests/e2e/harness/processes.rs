//! The processes of a pod.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Pod, TEST_TIMEOUT, Usage};

/// Sends a signal to each of these processes.
pub fn signal(name: &str, pids: &[u32]) {
    for pid in pids {
        let kill = Command::new("kill")
            .args(["-s", name, &pid.to_string()])
            .status();
        assert!(kill.unwrap().success());
    }
}

fn is_stopped(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(os::procfs::is_stopped)
}

/// Processes that are stopped until this is dropped.
pub struct Stopped(Vec<u32>);

impl Stopped {
    pub fn now(pids: Vec<u32>) -> Self {
        assert!(!pids.is_empty());
        signal("STOP", &pids);
        let end = Instant::now() + TEST_TIMEOUT;
        // A busy machine's scheduler lets a process stop later.
        while !pids.iter().all(|pid| is_stopped(*pid)) {
            assert!(Instant::now() < end, "{pids:?} do not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self(pids)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            // It may have been killed.
            let pid = pid.to_string();
            let _ = Command::new("kill").args(["-s", "CONT", &pid]).status();
        }
    }
}

/// Processes that run for a small part of the time, until this is dropped.
pub struct Slowed {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    pub fn now(pids: &[u32]) -> Self {
        assert!(!pids.is_empty());
        let pids: Vec<_> = pids
            .iter()
            .map(|pid| Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap())
            .collect();
        let signal = move |signal| {
            for pid in &pids {
                // It may have ended.
                let _ = kill_process(*pid, signal);
            }
        };
        let end = Arc::new(AtomicBool::new(false));
        let ends = end.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(50));
                signal(Signal::CONT);
                // A busy machine's scheduler gives the guest's processor its turn first.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

impl Pod {
    /// The QEMU processes that run a guest; others only tell libvirt what QEMU can do.
    pub fn guests(&self) -> Vec<u32> {
        let runs_guest = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains("guest="))
        };
        self.processes("qemu-system")
            .into_iter()
            .filter(runs_guest)
            .collect()
    }

    /// What the launcher and its guest take up.
    pub fn usage(&self) -> Usage {
        Usage::of(self.launcher.as_ref().unwrap().id(), self.guests()[0])
    }

    /// libvirt's daemon: `virtqemud`, or `libvirtd` where a distribution has no virtqemud.
    pub fn libvirt_daemons(&self) -> Vec<u32> {
        let names = ["virtqemud", "libvirtd"];
        names.iter().flat_map(|name| self.processes(name)).collect()
    }

    /// The processes of this pod's container, or those that have its root on their command line.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let root = self.root.path().to_string_lossy().into_owned();
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let command =
                    String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).ok()?)
                        .into_owned();
                let program = command.split('\0').next()?.to_owned();
                let ours = match &self.container {
                    Some(container) => container.has(&entry.path()),
                    None => command.contains(&root),
                };
                (program.contains(name) && ours).then_some(pid)
            })
            .collect()
    }
}
