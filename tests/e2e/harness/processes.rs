//! The processes of a pod.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

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
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, state)| state);
    state.is_some_and(|state| state.starts_with(['T', 't']))
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

/// Reads of a file, which wait from [`Self::hold`] until this is dropped.
pub struct HeldReads {
    hold: Arc<AtomicBool>,
    wait: watch::Receiver<bool>,
}

impl HeldReads {
    /// To be called before the file is opened: what is open already is read without a question.
    /// `None`, with a message, where reads may not be held.
    pub fn of(file: &Path) -> Option<Self> {
        let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC;
        let Ok(group) = Fanotify::init(flags, EventFFlags::O_CLOEXEC) else {
            println!("reads of a file cannot be held here");
            return None;
        };
        let (add, reads) = (MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_ACCESS_PERM);
        let marked = group.mark(add, reads, rustix::fs::CWD, Some(file));
        marked.unwrap();
        let hold = Arc::new(AtomicBool::new(false));
        let (waits, wait) = watch::channel(false);
        let is_held = hold.clone();
        std::thread::spawn(move || answer(&group, &is_held, &waits));
        Some(Self { hold, wait })
    }

    pub fn hold(&self) {
        self.hold.store(true, Ordering::Relaxed);
    }

    /// Waits until a read waits.
    pub async fn begun(&mut self) {
        let begun = tokio::time::timeout(TEST_TIMEOUT, self.wait.wait_for(|waits| *waits));
        begun.await.expect("nobody reads").unwrap();
    }
}

/// Lets each read go on, or none from when they are held. The group's end lets them all go on.
fn answer(group: &Fanotify, is_held: &AtomicBool, waits: &watch::Sender<bool>) {
    let tenth = Timespec::try_from(Duration::from_millis(100)).unwrap();
    while !waits.is_closed() {
        let mut reads = [PollFd::new(group, PollFlags::IN)];
        if poll(&mut reads, Some(&tenth)).unwrap() == 0 {
            continue;
        }
        let reads = group.read_events().unwrap();
        if is_held.load(Ordering::Relaxed) {
            waits.send_replace(true);
            continue;
        }
        for read in &reads {
            let goes_on = FanotifyResponse::new(read.fd().unwrap(), Response::FAN_ALLOW);
            // Its process may have ended.
            let _ = group.write_response(goes_on);
        }
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
        let named = |(pid, command): (u32, String)| {
            let program = command.split('\0').next()?;
            program.contains(name).then_some(pid)
        };
        self.all_processes().filter_map(named).collect()
    }

    /// The command lines of all of them.
    pub fn commands(&self) -> Vec<String> {
        let all = self.all_processes();
        all.map(|(_, command)| command.replace('\0', " ")).collect()
    }

    fn all_processes(&self) -> impl Iterator<Item = (u32, String)> {
        let root = self.root.path().to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(move |entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).into_owned();
            let ours = match &self.container {
                Some(container) => container.has(&entry.path()),
                None => command.contains(&root),
            };
            ours.then_some((pid, command))
        })
    }
}
