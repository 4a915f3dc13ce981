//! virtqemud (or libvirtd) and virtlogd as children of this process: started, logged, restarted when they exit, stopped.
//!
//! ```text
//!            ┌──────── 1 s ◄─────────┐
//!   spawn ──►│ running ──► exited ───┘      stop: SIGTERM ──(0.3 s)──► SIGKILL
//!   adopt ──►└─ stderr ──► log
//! ```
//!
//! [`super::libvirt_connection`] connects again after a restart.
//!
//! A launcher that is killed leaves its daemons behind; the next one below the same root adopts them.

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
use os::inotify::DirWatch;
use os::lines;
use os::logging::foreign;

/// For a daemon to listen on a socket that it has made.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts to reach a daemon that is just coming up.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// Exits without once being ready, after which the launcher gives up.
const MAX_EXITS: u32 = 5;
/// For what an exited daemon has written last: a process that it has started may keep its stderr open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// For the log.
    pub name: &'static str,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additions to the environment.
    pub env: Vec<(&'static str, PathBuf)>,
    /// Directories that take the place of the host's, for this daemon only (own, host's).
    pub mounts: Vec<(PathBuf, &'static str)>,
    /// Between its exit and its restart, so that one that can't run does not use up the processor.
    pub restart_delay: Duration,
}

impl Program {
    /// A daemon is a direct child whose process name is its own: virt-handler looks for it there. Where directories are
    /// to be put over the host's, a shell does this in a mount namespace of its own and then becomes the daemon.
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
        // Its many threads share one heap, and what it frees goes back to the system: memory counts in pods.
        command
            // D-sup-12 (docs/differences.md).
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .env("MALLOC_MMAP_THRESHOLD_", "65536");
        // What is set for libvirt in this process is not for them.
        command.env_remove(libvirt::OUTPUTS);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // The terminal's Ctrl-C is for the launcher: the guest is shut down through these first.
        command.process_group(0);
        command
    }

    fn spawn(&self) -> Result<DaemonProcess, DaemonError> {
        let child = self
            .command()
            .spawn()
            .map_err(|source| DaemonError::Spawn {
                program: self.path.clone(),
                source,
            })?;
        Ok(DaemonProcess::Child(child))
    }

    /// Its command line once it runs.
    pub fn command_line(&self) -> Vec<String> {
        std::iter::once(self.path.display().to_string())
            .chain(self.args.iter().cloned())
            .collect()
    }
}

/// How often a daemon has exited, and how the last time.
#[derive(Debug, Clone, Default)]
struct Exits {
    count: u32,
    last: Option<(ExitStatus, String)>,
}

/// A daemon that is restarted until it is stopped.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    stop: watch::Sender<bool>,
    replace: Arc<Notify>,
    /// Closed when it is stopped.
    exits: watch::Receiver<Exits>,
}

impl Daemon {
    /// Starts it, and restarts it when it exits.
    ///
    /// # Errors
    /// If the first start fails: a later one is only logged.
    pub fn start(program: Program) -> Result<Self, DaemonError> {
        let child = program.spawn()?;
        Ok(Self::new(program, child))
    }

    /// Takes over one that runs already.
    // D-sup-14 (docs/differences.md).
    pub fn adopt(program: Program, process: DaemonProcess) -> Self {
        tracing::info!(
            "{} of a previous launcher still runs; it is taken over",
            program.name
        );
        Self::new(program, process)
    }

    fn new(program: Program, process: DaemonProcess) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (report, exits) = watch::channel(Exits::default());
        let (name, replace) = (program.name, Arc::new(Notify::new()));
        let supervisor = Supervisor {
            program,
            report,
            stopping,
            replace: replace.clone(),
        };
        tokio::spawn(supervisor.run(process));
        Self {
            name,
            stop,
            replace,
            exits,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How often it has exited, and was started again.
    pub fn restarts(&self) -> u32 {
        self.exits.borrow().count
    }

    /// Kills it, so that it is restarted: it does not answer.
    pub fn replace(&self) {
        tracing::error!("{} does not answer; it is killed", self.name);
        self.replace.notify_one();
    }

    /// Stops it for good.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let mut exits = self.exits.clone();
        while exits.changed().await.is_ok() {}
    }

    /// Waits until `attempt` succeeds with the path of one of the sockets `names` in `dir`.
    ///
    /// Attempts are made as soon as a socket is there. It can be there a moment before it is listened on, and there is no
    /// event for that, so a failed attempt is repeated until a few seconds have passed.
    ///
    /// # Errors
    /// If the daemon keeps exiting, `dir` is gone, or the last attempt failed.
    // D-start-1 (docs/differences.md).
    pub async fn reach<T, E: From<DaemonError>, F: Future<Output = Result<T, E>>>(
        &self,
        dir: &Path,
        names: &[&str],
        mut attempt: impl FnMut(PathBuf) -> F,
    ) -> Result<T, E> {
        let watch = DirWatch::new();
        watch.add(dir).map_err(|source| DaemonError::NoDirectory {
            dir: dir.into(),
            source,
        })?;
        let mut exits = self.exits.clone();
        // Those before were of a daemon that may have served for long.
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

    /// An error if it has exited too often.
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

/// The task that restarts a daemon.
struct Supervisor {
    program: Program,
    report: watch::Sender<Exits>,
    stopping: watch::Receiver<bool>,
    replace: Arc<Notify>,
}

impl Supervisor {
    async fn run(mut self, first: DaemonProcess) {
        let mut process = Some(first);
        loop {
            if let Some(mut running) = process.take() {
                let mut log = Log::of(&mut running);
                let status = tokio::select! {
                    status = running.ended() => status,
                    () = self.replace.notified() => {
                        running.kill().await;
                        None
                    }
                    () = stop_requested(&mut self.stopping) => return running.end().await,
                };
                tracing::error!("{} exited, restarting", self.program.name);
                if let Some(status) = status {
                    let last_line = log.last_line().await;
                    self.report.send_modify(|exits| {
                        exits.count = exits.count.saturating_add(1);
                        exits.last = Some((status, last_line));
                    });
                }
            }
            tokio::select! {
                () = sleep(self.program.restart_delay) => {}
                () = stop_requested(&mut self.stopping) => return,
            }
            match self.program.spawn() {
                Ok(next) => process = Some(next),
                Err(error) => tracing::error!(
                    reason = &error as &dyn std::error::Error,
                    "{} does not start",
                    self.program.name
                ),
            }
        }
    }
}

async fn stop_requested(stopping: &mut watch::Receiver<bool>) {
    // An error means that the [`Daemon`] was dropped, which requests it too.
    drop(stopping.wait_for(|stop| *stop).await);
}

/// The task that copies a daemon's stderr to the log.
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
            task: process.stderr().map(copy),
            last_line,
        }
    }

    /// The last line, once the daemon has exited.
    async fn last_line(&mut self) -> String {
        if let Some(task) = &mut self.task {
            // A process that keeps the pipe open goes on being logged.
            let _ = timeout(STDERR_TIMEOUT, task).await;
        }
        self.last_line.borrow().clone()
    }
}

#[cfg(test)]
#[path = "daemons_tests.rs"]
mod tests;
