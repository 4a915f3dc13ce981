//! The program being checked.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::called::Subject;
use super::failure::CheckFailure;
use crate::client;
use crate::discovery;
use crate::sidecar::{Sidecar, Version};

/// Delay before a plugin's directory is read again.
const SOCKET_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Limit of the wait for the program's exit after a broken call: an ending program closes its
/// sockets before it exits.
const EXIT_DELAY: Duration = Duration::from_secs(1);

/// The program's process, started on demand.
pub struct SidecarProcess {
    command: Command,
    socket_dir: PathBuf,
    /// A connection shows that it serves: a plugin's sidecar has no `Info`.
    is_plugin: bool,
    running: Option<Running>,
}

struct Running {
    /// Declared before the child: dropping the child kills only the program, and its descendants
    /// could then no longer be found.
    group: Group,
    child: Child,
    sidecar: Sidecar,
}

/// The program's process group and descendants. Dropping it kills them all, so that a caller that
/// gives up leaves no process.
struct Group {
    leader: Option<Pid>,
    /// Descendants seen while the program ran. Once the program has ended, a descendant in another
    /// session can no longer be found by its parent.
    seen: Vec<(Pid, OwnedFd)>,
}

impl Group {
    fn see_descendants(&mut self) {
        for pid in self.leader.into_iter().flat_map(os::procfs::descendants) {
            if self.seen.iter().all(|(seen, _)| *seen != pid)
                && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            {
                self.seen.push((pid, handle));
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leader.into_iter().for_each(kill_group);
        for (pid, handle) in &self.seen {
            // If this fails, the process has ended, and its number may be another process's.
            if pidfd_send_signal(handle, Signal::STOP).is_ok() {
                kill_group(*pid);
            }
        }
    }
}

impl SidecarProcess {
    /// Does not start the program yet.
    pub fn new(mut command: Command, subject: &Subject) -> Self {
        command
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        Self {
            command,
            socket_dir: subject.socket_dir.clone(),
            is_plugin: subject.plugin.is_some(),
            running: None,
        }
    }

    /// Starts the program and waits until it serves.
    ///
    /// # Errors
    /// [`CheckFailure::Start`], [`CheckFailure::Exited`], [`CheckFailure::NotReady`].
    pub async fn start(&mut self, limit: Duration) -> Result<Sidecar, CheckFailure> {
        self.remove_sockets();
        let mut child = self.command.spawn().map_err(CheckFailure::Start)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Group {
            leader: id.and_then(Pid::from_raw),
            seen: Vec::new(),
        };
        let deadline = os::time::deadline(limit);
        let sidecar = tokio::select! {
            found = self.find(deadline) => found?,
            status = child.wait() => return Err(exited(status)),
        };
        self.running = Some(Running {
            child,
            group,
            sidecar: sidecar.clone(),
        });
        Ok(sidecar)
    }

    async fn find(&self, deadline: Instant) -> Result<Sidecar, CheckFailure> {
        if self.is_plugin {
            let found = timeout_at(deadline, first_socket(&self.socket_dir)).await;
            return found.map_err(|_| CheckFailure::NoSocket);
        }
        let found = discovery::collect(&self.socket_dir, 1, deadline).await?;
        found.into_iter().next().ok_or(CheckFailure::NoSocket)
    }

    /// Returns the sidecar, restarting it if it has exited.
    ///
    /// # Errors
    /// The errors of [`Self::start`].
    pub async fn running(&mut self, limit: Duration) -> Result<Sidecar, CheckFailure> {
        if let Some(running) = &mut self.running
            && matches!(running.child.try_wait(), Ok(None))
        {
            running.group.see_descendants();
            return Ok(running.sidecar.clone());
        }
        self.kill().await;
        self.start(limit).await
    }

    /// The cause of a failed call: the program's exit, if it exited during the call, else
    /// `failure`.
    pub async fn cause(&mut self, failure: CheckFailure) -> CheckFailure {
        let Some(running) = &mut self.running else {
            return failure;
        };
        match timeout(EXIT_DELAY, running.child.wait()).await {
            Ok(Ok(status)) => CheckFailure::EndedInCall {
                status,
                call: Box::new(failure),
            },
            _ => failure,
        }
    }

    /// Waits for the program to exit.
    ///
    /// # Errors
    /// [`CheckFailure::StillRunning`], or [`CheckFailure::Exited`] with a status other than 0.
    pub async fn ended(&mut self, limit: Duration) -> Result<(), CheckFailure> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let result = match timeout(limit, running.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(status) => Err(exited(status)),
            Err(_) => Err(CheckFailure::StillRunning { after: limit }),
        };
        self.kill().await;
        result
    }

    /// Sends SIGTERM and waits for the exit. The kubelet ignores the exit status.
    ///
    /// # Errors
    /// [`CheckFailure::StillRunning`].
    pub async fn terminate(&mut self, limit: Duration) -> Result<(), CheckFailure> {
        // The program leads its group. It may have exited already.
        let running = self.running.as_ref();
        if let Some(pid) = running.and_then(|running| running.group.leader) {
            let _ = kill_process(pid, Signal::TERM);
        }
        match self.ended(limit).await {
            Err(CheckFailure::Exited { .. }) => Ok(()),
            result => result,
        }
    }

    /// Kills the program and everything that it started.
    pub async fn kill(&mut self) {
        if let Some(Running {
            mut child, group, ..
        }) = self.running.take()
        {
            drop(group);
            let _ = child.wait().await;
        }
    }

    /// Removes the sockets of a killed program, so that none is taken for the next one's.
    fn remove_sockets(&self) {
        let entries = std::fs::read_dir(&self.socket_dir).into_iter().flatten();
        for entry in entries.flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Waits for a socket in the directory that accepts connections.
async fn first_socket(dir: &Path) -> Sidecar {
    loop {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for socket in entries.map(|entry| entry.path()) {
            if client::connect(&socket).await.is_ok() {
                let name = socket.file_name().unwrap_or_default();
                return Sidecar {
                    name: name.to_string_lossy().into_owned(),
                    id: socket.display().to_string(),
                    socket,
                    version: Version::V1alpha1,
                    points: Vec::new(),
                };
            }
        }
        sleep(SOCKET_RETRY_DELAY).await;
    }
}

/// Kills a process, its group and all descendants: programs that the shim calls have their own
/// groups.
fn kill_group(leader: Pid) {
    // The group is stopped first, so that it starts no other process meanwhile.
    let _ = kill_process_group(leader, Signal::STOP);
    let started = os::procfs::descendants(leader);
    for pid in std::iter::once(leader).chain(started) {
        // The group may have members whose parent has exited.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn exited(status: std::io::Result<ExitStatus>) -> CheckFailure {
    match status {
        Ok(status) => CheckFailure::Exited { status },
        Err(error) => CheckFailure::Start(error),
    }
}
