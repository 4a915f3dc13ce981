//! What a launcher that was killed leaves behind: its guest's QEMU, which nobody would end.
//!
//! QEMU is no child of the launcher's, but it becomes one of this program's when the launcher dies, for this program
//! has asked the kernel for orphans. So what is ended here is ours for certain.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

use os::children::children;

/// QEMU ends at once when it is asked; then it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// The orphans that this program takes in.
#[derive(Debug)]
pub struct LeftBehind {
    /// Children that were there before, from who this program has taken its process over.
    strangers: Vec<Pid>,
}

impl LeftBehind {
    /// From now on, orphans among this program's descendants are its children.
    #[must_use]
    pub fn adopt() -> Self {
        // Without it, orphans go to process 1, as they would anyway.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        Self {
            strangers: children(),
        }
    }

    /// Ends them. To be called once the launcher is gone; true if there were any.
    pub async fn end(&self) -> bool {
        let found = self.signal_all(Signal::TERM);
        let mut waited = Duration::ZERO;
        while !self.orphans().is_empty() && waited < 2 * PATIENCE {
            if waited >= PATIENCE {
                self.signal_all(Signal::KILL);
            }
            for pid in self.orphans() {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
        found
    }

    fn orphans(&self) -> Vec<Pid> {
        children()
            .into_iter()
            .filter(|pid| !self.strangers.contains(pid))
            .collect()
    }

    fn signal_all(&self, signal: Signal) -> bool {
        let orphans = self.orphans();
        for pid in &orphans {
            let _ = kill_process(*pid, signal);
        }
        !orphans.is_empty()
    }
}
