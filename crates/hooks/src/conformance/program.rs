//! The program under check.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::failure::Failure;
use crate::discovery;
use crate::sidecar::Sidecar;

/// The program's process, started on demand.
pub struct Process {
    command: Command,
    socket_dir: PathBuf,
    running: Option<Running>,
}

struct Running {
    /// Dropped before the child, which is killed on its own then: what it has started would not be found any more.
    group: Group,
    child: Child,
    sidecar: Sidecar,
}

/// The program's process group. When dropped, everything in it is killed, so that nothing is left by a caller that gives up.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(self.0);
    }
}

impl Process {
    /// Does not start it yet.
    pub fn new(mut command: Command, socket_dir: PathBuf) -> Self {
        command
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        Self {
            command,
            socket_dir,
            running: None,
        }
    }

    /// Starts it, and waits until it answers `Info`.
    ///
    /// # Errors
    /// [`Failure::Start`], [`Failure::Exited`], [`Failure::NotReady`].
    pub async fn start(&mut self, limit: Duration) -> Result<Sidecar, Failure> {
        self.remove_sockets();
        let mut child = self.command.spawn().map_err(Failure::Start)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Group(id.and_then(Pid::from_raw));
        let deadline = os::time::deadline(limit);
        let found = tokio::select! {
            found = discovery::collect(&self.socket_dir, 1, deadline) => found.map_err(Failure::from),
            status = child.wait() => Err(exited(status)),
        };
        match found.map(|found| found.into_iter().next()) {
            Ok(Some(sidecar)) => {
                self.running = Some(Running {
                    child,
                    group,
                    sidecar: sidecar.clone(),
                });
                Ok(sidecar)
            }
            failed => Err(failed.err().unwrap_or(Failure::NoSocket)),
        }
    }

    /// The sidecar; it is started again if it has ended.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub async fn running(&mut self, limit: Duration) -> Result<Sidecar, Failure> {
        if let Some(running) = &mut self.running
            && matches!(running.child.try_wait(), Ok(None))
        {
            return Ok(running.sidecar.clone());
        }
        self.kill().await;
        self.start(limit).await
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// [`Failure::StillRunning`], or [`Failure::Exited`] with a status other than 0.
    pub async fn ended(&mut self, limit: Duration) -> Result<(), Failure> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let result = match timeout(limit, running.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(status) => Err(exited(status)),
            Err(_) => Err(Failure::StillRunning { after: limit }),
        };
        self.kill().await;
        result
    }

    /// Sends SIGTERM and waits until it has ended. The exit status does not matter to the kubelet.
    ///
    /// # Errors
    /// [`Failure::StillRunning`].
    pub async fn terminate(&mut self, limit: Duration) -> Result<(), Failure> {
        // The leader of the group is the program itself. It may have ended already.
        if let Some(pid) = self.running.as_ref().and_then(|running| running.group.0) {
            let _ = kill_process(pid, Signal::TERM);
        }
        match self.ended(limit).await {
            Err(Failure::Exited { .. }) => Ok(()),
            result => result,
        }
    }

    /// Kills it with everything that it started.
    pub async fn kill(&mut self) {
        if let Some(Running {
            mut child, group, ..
        }) = self.running.take()
        {
            drop(group);
            let _ = child.wait().await;
        }
    }

    /// A killed program leaves its socket, which would be found in place of the new one.
    fn remove_sockets(&self) {
        let entries = std::fs::read_dir(&self.socket_dir).into_iter().flatten();
        for entry in entries.flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// What the program has started may have process groups of its own, as a program that the shim calls has.
fn kill_group(group: Option<Pid>) {
    if let Some(leader) = group {
        // It must not start another one meanwhile.
        let _ = kill_process_group(leader, Signal::STOP);
        let started = os::procfs::descendants(leader);
        let _ = kill_process_group(leader, Signal::KILL);
        for pid in started {
            // Its group may have members that are nobody's descendants any more.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn exited(status: std::io::Result<ExitStatus>) -> Failure {
    match status {
        Ok(status) => Failure::Exited { status },
        Err(error) => Failure::Start(error),
    }
}
