//! virtqemud (or libvirtd) and virtlogd as children of this process, or of one that outlives it
//! (`pod::daemons_parent`): started, logged, stopped. When virtqemud dies (exits, crashes), it is
//! restarted after a second (`RESTART_DELAY` in `backend`).
//!
//! ```text
//!            ┌──────── 1 s ◄─────────┐
//!   spawn ──►│ running ──► exited ───┘      stop: SIGTERM ──(0.3 s)──► SIGKILL
//!   adopt ──►└─ stderr ──► log
//! ```
//!
//! QEMU runs on; [`super::libvirt_connection`] reconnects after a restart.
//!
//! A killed launcher leaves its daemons behind. The next launcher with the same root adopts them.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::daemon_error::DaemonError;
use super::daemon_process::DaemonProcess;
use os::file_error::FileError;
use os::inotify::DirWatch;
use os::lines;
use os::logging::foreign;
use os::process::MALLOC_WITHOUT_CACHES;
use pod::daemons_parent;
use pod::restart::socket_to_owner;

/// Limit of the time between a daemon's making a socket and listening on it.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between attempts to reach a starting daemon.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// The launcher gives up a daemon that has exited this often before it was ready.
const MAX_EXITS: u32 = 5;
/// Limit for reading an exited daemon's last output: a process that it started may keep stderr
/// open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct DaemonProgram {
    /// The name in the log.
    pub name: &'static str,
    pub path: PathBuf,
    pub args: Vec<String>,
    /// Added to the environment.
    pub env: Vec<(&'static str, PathBuf)>,
    /// Directories mounted over the host's for this daemon only, as (own, host's).
    pub mounts: Vec<(PathBuf, &'static str)>,
    /// Delay before a restart, so that a daemon that cannot run does not waste processor time.
    pub restart_delay: Duration,
}

impl DaemonProgram {
    /// A daemon is a child of the command socket's owner, with its own process name: virt-handler
    /// looks for it there. To mount directories over the host's, a shell makes its own mount
    /// namespace and then becomes the daemon.
    // D-sup-6 (docs/differences.md).
    fn command(&self) -> Command {
        const MOUNT: &str = "while [ \"$1\" != -- ]; do mkdir -p \"$2\" && mount --bind \"$1\" \"$2\" || exit; shift 2; \
                             done; shift; exec \"$@\"";
        let mut command = if self.mounts.is_empty() {
            Command::new(&self.path)
        } else {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--", "/bin/sh", "-c", MOUNT, "sh"]);
            for (own, host) in &self.mounts {
                command.arg(own).arg(host);
            }
            command.arg("--").arg(&self.path);
            command
        };
        // Saves memory in the pod: all threads share one heap, and freed memory returns to the
        // system.
        command
            // D-sup-12 (docs/differences.md).
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .env("MALLOC_MMAP_THRESHOLD_", "65536")
            .envs([MALLOC_WITHOUT_CACHES]);
        // This process sets it for libvirt, not for the daemons.
        command.env_remove(libvirt::OUTPUTS);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C in a terminal must reach only the launcher: shutting down the guest needs the
        // daemons.
        command.process_group(0);
        command
    }

    /// As a child of the command socket's owner, if there is one besides this process.
    async fn spawn(&self) -> Result<DaemonProcess, FileError> {
        let mut command = self.command();
        let started = match socket_to_owner() {
            Some(owner) => daemons_parent::start(owner, command.as_std())
                .await
                .map(|(process, stderr)| DaemonProcess::of_other(process, Some(stderr))),
            None => command.spawn().and_then(DaemonProcess::of_child),
        };
        started.map_err(FileError::on("start", &self.path))
    }

    /// The command line of the running daemon.
    pub fn command_line(&self) -> Vec<String> {
        std::iter::once(self.path.display().to_string())
            .chain(self.args.iter().cloned())
            .collect()
    }
}

/// Number of exits, and the last one.
#[derive(Debug, Clone, Default)]
struct Exits {
    count: u32,
    /// How often the daemon was killed because it did not answer.
    replaced: u32,
    /// The last exit's status, and the last line of its log.
    last: Option<(Option<ExitStatus>, String)>,
}

/// A daemon that is restarted until stopped.
#[derive(Debug)]
pub struct Daemon {
    pub name: &'static str,
    stop: watch::Sender<bool>,
    replace: Arc<Notify>,
    /// Closed when the daemon is stopped.
    exits: watch::Receiver<Exits>,
}

impl Daemon {
    /// Starts the daemon, and restarts it after each exit.
    ///
    /// # Errors
    /// The first start fails. Later failures are only logged.
    pub async fn start(program: DaemonProgram) -> Result<Self, DaemonError> {
        let process = program.spawn().await?;
        Ok(Self::new(program, process))
    }

    /// Takes over a running process.
    // D-sup-14 (docs/differences.md).
    pub fn adopt(program: DaemonProgram, process: DaemonProcess) -> Self {
        tracing::info!(
            "{} of a previous launcher still runs; it is taken over",
            program.name
        );
        Self::new(program, process)
    }

    fn new(program: DaemonProgram, process: DaemonProcess) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (report, exits) = watch::channel(Exits::default());
        let (name, replace) = (program.name, Arc::new(Notify::new()));
        let keeper = DaemonKeeper {
            program,
            report,
            stopping,
            replace: replace.clone(),
        };
        tokio::spawn(keeper.run(process));
        Self {
            name,
            stop,
            replace,
            exits,
        }
    }

    /// Number of restarts.
    pub fn restarts(&self) -> u32 {
        let exits = self.exits.borrow();
        exits.count.saturating_add(exits.replaced)
    }

    /// Kills a daemon that does not answer. The daemon is then restarted.
    pub fn replace(&self) {
        tracing::error!("{} does not answer; it is killed", self.name);
        self.replace.notify_one();
    }

    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let mut exits = self.exits.clone();
        while exits.changed().await.is_ok() {}
    }

    /// Waits until `attempt` succeeds with the path of one of the sockets `names` in `dir`.
    ///
    /// The first attempt is made as soon as a socket exists. The daemon may not listen yet, and no
    /// event tells when it does, so a failed attempt is repeated for up to [`LISTEN_TIMEOUT`].
    ///
    /// # Errors
    /// The daemon keeps exiting, `dir` is gone, or the last attempt failed.
    // D-start-1 (docs/differences.md).
    pub async fn reach<T, E: From<DaemonError>, F: Future<Output = Result<T, E>>>(
        &self,
        dir: &Path,
        names: &[&str],
        mut attempt: impl FnMut(PathBuf) -> F,
    ) -> Result<T, E> {
        let watch = DirWatch::new();
        let failed = FileError::on("wait for libvirt's socket in", dir);
        watch.add(dir).map_err(failed).map_err(DaemonError::from)?;
        let mut exits = self.exits.clone();
        // Earlier exits belong to a daemon that may have served for long.
        let exits_before = exits.borrow_and_update().count;
        let mut give_up = None;
        loop {
            let sockets = names.iter().map(|name| dir.join(name));
            let socket = sockets.into_iter().find(|path| path.exists());
            let is_bound = socket.is_some();
            if let Some(socket) = socket {
                let give_up = *give_up.get_or_insert_with(|| os::time::deadline(LISTEN_TIMEOUT));
                match attempt(socket).await {
                    Err(error) if Instant::now() > give_up => return Err(error),
                    Err(_) => {}
                    reached => return reached,
                }
            }
            self.check(&exits.borrow_and_update(), exits_before)?;
            tokio::select! {
                () = watch.changed() => {}
                Ok(()) = exits.changed() => {}
                () = sleep(RETRY_DELAY), if is_bound => {}
            }
        }
    }

    /// Fails if the daemon has exited too often.
    fn check(&self, exits: &Exits, exits_before: u32) -> Result<(), DaemonError> {
        let times = exits.count.saturating_sub(exits_before);
        match &exits.last {
            Some((status, last_line)) if times >= MAX_EXITS => Err(DaemonError::KeepsExiting {
                name: self.name,
                times,
                status: *status,
                last_line: last_line.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// The task that restarts the daemon.
struct DaemonKeeper {
    program: DaemonProgram,
    report: watch::Sender<Exits>,
    stopping: watch::Receiver<bool>,
    replace: Arc<Notify>,
}

impl DaemonKeeper {
    async fn run(mut self, first: DaemonProcess) {
        let mut process = Some(first);
        loop {
            if let Some(mut running) = process.take() {
                let mut log = Log::of(&mut running);
                tokio::select! {
                    status = running.ended() => {
                        let last_line = log.last_line().await;
                        self.report.send_modify(|exits| {
                            exits.count = exits.count.saturating_add(1);
                            exits.last = Some((status, last_line));
                        });
                    }
                    () = self.replace.notified() => {
                        running.kill().await;
                        self.report.send_modify(|exits| {
                            exits.replaced = exits.replaced.saturating_add(1);
                        });
                    }
                    () = stop_requested(&mut self.stopping) => return running.end().await,
                }
                tracing::error!("{} exited, restarting", self.program.name);
            }
            tokio::select! {
                () = sleep(self.program.restart_delay) => {}
                () = stop_requested(&mut self.stopping) => return,
            }
            match self.program.spawn().await {
                Ok(next) => process = Some(next),
                Err(error) => {
                    tracing::error!(reason = %os::logging::chain(&error), "{} does not start", self.program.name)
                }
            }
            // A request from the time without a daemon is not about this one.
            tokio::select! {
                biased;
                () = self.replace.notified() => {}
                () = std::future::ready(()) => {}
            }
        }
    }
}

async fn stop_requested(stopping: &mut watch::Receiver<bool>) {
    // Dropping the [`Daemon`] also requests the stop and causes an error here.
    drop(stopping.wait_for(|stop| *stop).await);
}

/// Copies a daemon's stderr to the log.
struct Log {
    task: Option<JoinHandle<()>>,
    last_line: watch::Receiver<String>,
}

impl Log {
    fn of(process: &mut DaemonProcess) -> Self {
        let (seen, last_line) = watch::channel(String::new());
        let copy = |stderr| {
            tokio::spawn(lines::for_each(stderr, move |line| {
                foreign::libvirt(line);
                seen.send_replace(line.to_owned());
            }))
        };
        Self {
            task: process.stderr.take().map(copy),
            last_line,
        }
    }

    /// The last line after the daemon's exit.
    async fn last_line(&mut self) -> String {
        if let Some(task) = &mut self.task {
            // Another process may keep the pipe open; its output is still logged.
            let _ = timeout(STDERR_TIMEOUT, task).await;
        }
        self.last_line.borrow().clone()
    }
}

#[cfg(test)]
#[path = "daemons_tests.rs"]
mod tests;
