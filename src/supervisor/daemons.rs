//! libvirt's daemons as children of this process: started, logged, started again when they end, stopped.
//!
//! ```text
//!            ┌──────── 1 s ◄─────────┐
//!   spawn ──►│ running ──► exited ───┘      stop: SIGTERM ──(0.3 s)──► SIGKILL
//!   adopt ──►└─ stderr ──► log
//! ```
//!
//! A launcher that is killed leaves its daemons behind; the next one below the same root adopts them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::running::Running;
use os::fs_events::DirWatch;
use os::logging::foreign;

/// For a daemon to listen on a socket that it has made.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to reach a daemon that is just coming up.
const AGAIN: Duration = Duration::from_millis(5);
/// Starts without once being ready, after which the launcher gives up.
const ATTEMPTS: u32 = 5;

/// Why libvirt's daemon is not there.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No daemon is installed.
    #[error(
        "neither {} is there: install libvirt's QEMU driver (Debian: libvirt-daemon-system; Fedora: \
         libvirt-daemon-driver-qemu), or use --libvirt=embed",
        join(.0)
    )]
    NotInstalled(Vec<PathBuf>),
    /// It can't be run.
    #[error("can't start {}", program.display())]
    Spawn {
        /// What was to be run.
        program: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// It ended again and again before it served its socket.
    #[error(
        "{name} ended {attempts} times before it was ready, at last with {status}; its last words: {words:?}"
    )]
    Ends {
        /// The daemon.
        name: &'static str,
        /// How often.
        attempts: u32,
        /// How it ended.
        status: ExitStatus,
        /// The last line of its stderr.
        words: String,
    },
    /// Another daemon serves the socket.
    #[error("another libvirt daemon already serves {}: stop it, or use --root DIR or --libvirt=embed", .0.display())]
    Taken(PathBuf),
    /// Who serves the socket can't be found out.
    #[error("can't find out who serves {}", socket.display())]
    Unknown {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The directory of its sockets can't be watched.
    #[error("can't wait for libvirt's socket in {}", dir.display())]
    Watch {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

fn join(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" nor ")
}

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
    /// Between its end and its next start, so that one that can't run does not eat the processor.
    pub pause: Duration,
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
        // Its many threads share one heap, and what it needs once only goes back to the system: memory counts in pods.
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

    fn spawn(&self) -> Result<Running, DaemonError> {
        let child = self
            .command()
            .spawn()
            .map_err(|source| DaemonError::Spawn {
                program: self.path.clone(),
                source,
            })?;
        Ok(Running::Child(child))
    }

    /// Its command line once it runs.
    pub fn command_line(&self) -> Vec<String> {
        std::iter::once(self.path.display().to_string())
            .chain(self.args.iter().cloned())
            .collect()
    }
}

/// How a daemon fares.
#[derive(Debug, Clone, Default)]
struct Health {
    ends: u32,
    last: Option<(ExitStatus, String)>,
}

/// A daemon that is kept running until it is stopped.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    stop: watch::Sender<bool>,
    replace: Arc<Notify>,
    /// Closed when it is ended for good.
    health: watch::Receiver<Health>,
}

impl Daemon {
    /// Starts it, and keeps it running.
    ///
    /// # Errors
    /// If the first start fails: a later one is only logged.
    pub fn start(program: Program) -> Result<Self, DaemonError> {
        let child = program.spawn()?;
        Ok(Self::keep(program, child))
    }

    /// Keeps one running that is there already.
    // D-sup-14 (docs/differences.md).
    pub fn adopt(program: Program, running: Running) -> Self {
        tracing::info!(
            "{} of an earlier launcher still runs; it is taken over",
            program.name
        );
        Self::keep(program, running)
    }

    fn keep(program: Program, running: Running) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (tell, health) = watch::channel(Health::default());
        let (name, replace) = (program.name, Arc::new(Notify::new()));
        tokio::spawn(keep(program, running, tell, stopping, replace.clone()));
        Self {
            name,
            stop,
            replace,
            health,
        }
    }

    /// Kills it, so that another one takes its place: it does not answer.
    pub fn replace(&self) {
        tracing::error!("{} does not answer; it is killed", self.name);
        self.replace.notify_one();
    }

    /// Ends it for good.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let mut health = self.health.clone();
        while health.changed().await.is_ok() {}
    }

    /// Waits until `attempt` succeeds with the path of one of the sockets `names` in `dir`.
    ///
    /// Attempts are made as soon as a socket is there. It can be there a moment before it is listened on, and nothing
    /// tells when it is, so a failed attempt is made again until a few seconds have passed.
    ///
    /// # Errors
    /// If the daemon keeps ending, `dir` can't be watched, or the last attempt failed.
    // D-start-1 (docs/differences.md).
    pub async fn reached<T, E: From<DaemonError>, F: Future<Output = Result<T, E>>>(
        &self,
        dir: &Path,
        names: &[&str],
        mut attempt: impl FnMut(PathBuf) -> F,
    ) -> Result<T, E> {
        let unwatched = |source| DaemonError::Watch {
            dir: dir.into(),
            source,
        };
        let watch = DirWatch::new().map_err(unwatched)?;
        watch.add(dir).map_err(unwatched)?;
        let mut health = self.health.clone();
        let mut give_up = None;
        loop {
            let socket = names
                .iter()
                .map(|name| dir.join(name))
                .find(|path| path.exists());
            let bound = socket.is_some();
            if let Some(socket) = socket {
                let give_up = *give_up.get_or_insert_with(|| os::time::deadline(PATIENCE));
                match attempt(socket).await {
                    Err(error) if Instant::now() > give_up => return Err(error),
                    Err(_) => {}
                    done => return done,
                }
            }
            let state = health.borrow_and_update().clone();
            if let (attempts @ ATTEMPTS.., Some((status, words))) = (state.ends, state.last) {
                return Err(DaemonError::Ends {
                    name: self.name,
                    attempts,
                    status,
                    words,
                }
                .into());
            }
            tokio::select! {
                changed = watch.changed() => changed.map_err(unwatched)?,
                Ok(()) = health.changed() => {}
                () = sleep(AGAIN), if bound => {}
            }
        }
    }
}

async fn keep(
    program: Program,
    first: Running,
    tell: watch::Sender<Health>,
    mut stop: watch::Receiver<bool>,
    replace: Arc<Notify>,
) {
    let mut process = Some(first);
    loop {
        if let Some(mut running) = process.take() {
            let words = tokio::spawn(log_lines(running.stderr(), foreign::libvirt));
            let status = tokio::select! {
                status = running.ended() => status,
                () = replace.notified() => {
                    running.kill().await;
                    None
                }
                () = told(&mut stop) => return running.end().await,
            };
            tracing::error!("{} exited, restarting", program.name);
            if let Some(status) = status {
                let words = words.await.unwrap_or_default();
                tell.send_modify(|health| {
                    health.ends += 1;
                    health.last = Some((status, words));
                });
            }
        }
        tokio::select! {
            () = sleep(program.pause) => {}
            () = told(&mut stop) => return,
        }
        match program.spawn() {
            Ok(next) => process = Some(next),
            Err(error) => tracing::error!(
                reason = &error as &dyn std::error::Error,
                "{} does not start",
                program.name
            ),
        }
    }
}

/// Waits until it is to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody is left who could say so, which says it too.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Gives the lines that libvirt writes to `log`, and returns the last one.
pub async fn log_lines(source: Option<impl AsyncRead + Unpin>, log: fn(&str)) -> String {
    /// Longer lines are cut.
    const LONGEST: u64 = 512 * 1024;
    let Some(source) = source else {
        return String::new();
    };
    let (mut reader, mut line, mut last) = (
        BufReader::with_capacity(4096, source),
        Vec::new(),
        String::new(),
    );
    loop {
        line.clear();
        match (&mut reader)
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .await
        {
            Ok(0) | Err(_) => return last,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                log(text.trim_end());
                last = text.trim_end().to_owned();
            }
        }
    }
}

#[cfg(test)]
#[path = "daemons_tests.rs"]
mod tests;
