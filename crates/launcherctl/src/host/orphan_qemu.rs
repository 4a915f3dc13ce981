//! Ends the QEMU of a killed launcher, which nothing else would end.
//!
//! This program is a child subreaper, so such a QEMU becomes its child; it ends only its own
//! children.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use os::process::adopt_orphans;
use os::procfs::{arguments, children};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls until SIGKILL, 5 s after SIGTERM, on which QEMU normally exits at once.
const POLLS_BEFORE_KILL: u32 = 100;
/// Polls after which it is left alone.
const MAX_POLLS: u32 = 2 * POLLS_BEFORE_KILL;

/// Adopts and ends orphaned descendants.
#[derive(Debug)]
pub struct OrphanQemu {
    /// Earlier children, of the program that this process ran before exec.
    not_ours: Vec<Pid>,
}

impl OrphanQemu {
    /// Makes orphans among this program's descendants its children from now on.
    pub fn adopt() -> Self {
        // On failure, orphans go to process 1, as they would anyway.
        let _ = adopt_orphans();
        Self {
            not_ours: children(),
        }
    }

    /// Ends the orphans. Returns true if one was a QEMU with a guest. Call it when the launcher has
    /// exited.
    pub async fn terminate(&self) -> bool {
        let found = self.orphans().into_iter().any(has_guest);
        for poll in 0..MAX_POLLS {
            let orphans = self.orphans();
            if orphans.is_empty() {
                break;
            }
            for pid in orphans {
                match poll {
                    0 => drop(kill_process(pid, Signal::TERM)),
                    POLLS_BEFORE_KILL.. => drop(kill_process(pid, Signal::KILL)),
                    _ => {}
                }
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        found
    }

    fn orphans(&self) -> Vec<Pid> {
        let mut orphans = children();
        orphans.retain(|pid| !self.not_ours.contains(pid));
        orphans
    }
}

/// libvirt names the guest in QEMU's arguments; a QEMU probed for its capabilities, or another
/// helper of the launcher, has no such argument.
fn has_guest(pid: Pid) -> bool {
    let arguments = arguments(pid).unwrap_or_default();
    arguments.iter().any(|it| it.starts_with("guest="))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_helper_is_not_taken_for_a_guest() {
        let has_guest = |argument: &str| {
            let mut child = std::process::Command::new("tail")
                .args(["-f", "/dev/null", argument])
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&child);
            // Waits until it is tail: before, it is a copy of this process.
            while arguments(pid).is_ok_and(|words| words.first().is_none_or(|it| it != "tail")) {}
            let found = has_guest(pid);
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        assert!(has_guest("guest=default_web,debug-threads=on"));
        assert!(!has_guest("other"));
    }
}
