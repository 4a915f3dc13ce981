//! Hands over to another executable, which adopts libvirt's daemons and the guest (`launcherctl
//! upgrade`).
//!
//! ```text
//!   asked ─► checked ─► no new calls are accepted ─► calls in progress are answered ─► the process ends, the guest does not
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use super::vm::{JobKind, Vm};
use crate::notify::Notifier;

/// Limit for virt-handler to take the waiting events.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for an executable to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Start of a launcher's version.
const VERSION: &[u8] = b"virt-launcher ";

/// Why this launcher does not hand over.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// Nobody would start the next launcher.
    #[error(
        "virt-launcher-monitor does not start another launcher: it runs without --restart-launcher"
    )]
    NoRestart,
    /// A job keeps its state in this process.
    #[error("{0} is in progress; try again when that has ended")]
    Job(JobKind),
    /// Events would be lost.
    #[error("virt-handler has not taken all events yet; try again when it is back")]
    Events,
    /// The executable cannot be run.
    #[error("cannot run {}", path.display())]
    Run {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The executable is another program.
    #[error("{} --version does not answer as a virt-launcher does", .0.display())]
    NotALauncher(PathBuf),
}

/// Hands the guest over.
pub struct HandOver {
    vm: Arc<Vm>,
    notifier: Notifier,
    stage: watch::Sender<Stage>,
}

impl HandOver {
    pub(super) fn new(vm: Arc<Vm>, notifier: Notifier) -> Self {
        Self {
            vm,
            notifier,
            stage: watch::Sender::new(Stage::NotAllowed),
        }
    }

    /// Allows it: a monitor would start the next launcher.
    pub fn allow(&self) {
        self.stage.send_replace(Stage::Allowed);
    }

    /// Waits for a request to hand over. Returns the executable.
    pub async fn requested(&self) -> PathBuf {
        let mut state = self.stage.subscribe();
        loop {
            if let Stage::Requested(path) = &*state.borrow_and_update() {
                return path.clone();
            }
            // Cannot fail: the sender lives as long as the launcher.
            let _ = state.changed().await;
        }
    }

    /// Checks that `executable` can take over, and requests it.
    ///
    /// # Errors
    /// It cannot take over now.
    pub async fn request(&self, executable: PathBuf) -> Result<(), HandOverError> {
        if matches!(*self.stage.borrow(), Stage::NotAllowed) {
            return Err(HandOverError::NoRestart);
        }
        if let Some(job) = self.vm.snapshot().jobs.first() {
            return Err(HandOverError::Job(*job));
        }
        check_version(&executable).await?;
        let deadline = os::time::deadline(FLUSH_TIMEOUT);
        if !self.notifier.flush(deadline).await {
            return Err(HandOverError::Events);
        }
        self.stage.send_replace(Stage::Requested(executable));
        Ok(())
    }

    /// Waits until no change of the domain is in progress and virt-handler has all events, at most
    /// for `limit`.
    pub async fn quiesce(&self, limit: Duration) {
        let quiet = async {
            self.vm.changes_ended().await;
            self.notifier.flush(os::time::deadline(limit)).await
        };
        if timeout(limit, quiet).await != Ok(true) {
            tracing::warn!(
                "Something is still in progress; the next launcher finds what it has left"
            );
        }
    }
}

/// The state of a hand-over.
#[derive(Debug)]
enum Stage {
    /// Nobody would start the next launcher.
    NotAllowed,
    /// Not requested.
    Allowed,
    /// Requested, to this executable.
    Requested(PathBuf),
}

async fn check_version(executable: &Path) -> Result<(), HandOverError> {
    let fail = |source| HandOverError::Run {
        path: executable.into(),
        source,
    };
    let mut command = Command::new(executable);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    #[expect(
        clippy::disallowed_methods,
        reason = "it has a limit in time; the executable is to be the launcher, and so is trusted with its memory"
    )]
    let output = timeout(VERSION_TIMEOUT, command.output())
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(fail)?;
    if output.status.success() && output.stdout.starts_with(VERSION) {
        Ok(())
    } else {
        Err(HandOverError::NotALauncher(executable.into()))
    }
}
