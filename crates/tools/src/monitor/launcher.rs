//! The launcher's process: started, signalled, and restarted after it is killed, if the monitor's
//! flag or the image's switch asks for it.
//!
//! ```text
//!   start ─► running ──exit──► its exit code
//!     ▲         │ killed; or started again, and fails or does not serve in 25 s
//!     └─────────┴── the third time in a minute, or asked to end ──► 255
//! ```
//! The next launcher takes over libvirt's daemons and the guest. Signals wait until it serves: an
//! earlier one would end the launcher but not the guest. If it dies before, the monitor ends QEMU.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::process::{Pid, kill_process};

use super::options::Options;
use super::socket_owner::CommandSocketOwner;
use super::{MonitorError, reap};
use os::file_error::FileError;
use os::process::MALLOC_WITHOUT_CACHES;
use os::signals::SignalQueue;
use pod::restart::Restarts;

/// The monitor's exit code if a signal (SIGKILL) killed the launcher, as in the reference.
const KILLED_BY_SIGNAL: u8 = 255;
/// Deaths within [`DEATHS_WINDOW`] after which the launcher is not restarted.
const MAX_DEATHS: usize = 3;
const DEATHS_WINDOW: Duration = Duration::from_secs(60);
/// Limit for a launcher that was started again to serve. It replaces a daemon that hangs after
/// 15 s, and [`MAX_DEATHS`] fit into [`DEATHS_WINDOW`].
const SERVE_TIMEOUT: Duration = Duration::from_secs(25);
/// Limit for a killed launcher to be gone: the kernel may hold it in a call of a file system.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The launcher across restarts.
// D-sup-16 (docs/differences.md).
pub struct LauncherProcess<'a> {
    program: PathBuf,
    arguments: Vec<OsString>,
    signals: &'a SignalQueue,
    /// Set if it is started again.
    socket: Option<CommandSocketOwner>,
    deaths: Deaths,
    restarts: Restarts,
    /// Whether a signal has asked it to end.
    end_requested: bool,
    /// Whether a signal ends the launcher in order: it serves, or is the first one, which has no
    /// guest yet.
    takes_signals: bool,
}

impl<'a> LauncherProcess<'a> {
    /// Does not start the launcher yet.
    ///
    /// # Errors
    /// Its socket cannot be bound.
    pub fn new(
        options: &Options,
        arguments: Vec<OsString>,
        signals: &'a SignalQueue,
    ) -> Result<Self, MonitorError> {
        let socket = options.restart_launcher.then(|| {
            let (starting, ready) = &options.sockets;
            let socket = pod::restart::bind_command_socket(starting, ready);
            let socket = socket.map_err(FileError::on("listen on", starting))?;
            CommandSocketOwner::start(socket.into()).map_err(MonitorError::Owner)
        });
        Ok(Self {
            program: program(),
            arguments,
            signals,
            socket: socket.transpose()?,
            deaths: Deaths::default(),
            restarts: Restarts::default(),
            end_requested: false,
            takes_signals: true,
        })
    }

    /// Runs the launcher to its end and returns its exit code.
    ///
    /// # Errors
    /// It cannot be started, or signals cannot be received.
    pub fn run(&mut self) -> Result<u8, MonitorError> {
        loop {
            let cause = match self.run_once()? {
                End::Exited(status) => return Ok(status),
                End::Died(cause) => cause,
            };
            let gives_up = self.end_requested && !self.takes_signals;
            if gives_up || self.socket.is_none() {
                return Ok(KILLED_BY_SIGNAL);
            }
            if self.deaths.are_too_many(Instant::now()) {
                tracing::error!(
                    "virt-launcher has died {MAX_DEATHS} times in {} s; giving up",
                    DEATHS_WINDOW.as_secs()
                );
                return Ok(KILLED_BY_SIGNAL);
            }
            tracing::warn!(cause, "virt-launcher has died; starting it again");
            self.restarts.count = self.restarts.count.saturating_add(1);
            self.restarts.cause = cause;
            self.takes_signals = false;
        }
    }

    /// Runs one process to its end.
    fn run_once(&mut self) -> Result<End, MonitorError> {
        let child = Pid::from_child(&self.spawn()?);
        let mut deadline = os::time::deadline(SERVE_TIMEOUT).into_std();
        let (mut is_asked, mut is_killed) = (false, false);
        loop {
            let owner = self.socket.as_mut();
            let owner_starts = owner.and_then(CommandSocketOwner::start_in_time);
            let must_serve = Some(deadline).filter(|_| !self.takes_signals);
            let next = owner_starts.into_iter().chain(must_serve).min();
            let signal = self.signals.next(next);
            match signal.map_err(MonitorError::Signals)? {
                Some(Signal::SIGCHLD) => {
                    let ended = reap();
                    if let Some(socket) = &mut self.socket {
                        socket.note_ended(&ended);
                    }
                    if let Some((_, status)) = ended.iter().find(|(pid, _)| *pid == child) {
                        tracing::info!("Reaped Launcher main pid");
                        let signal = status.terminating_signal().filter(|_| !is_killed);
                        return Ok(End::of(status.exit_status(), signal, self.takes_signals));
                    }
                }
                Some(Signal::SIGUSR1) => self.takes_signals = true,
                Some(_) => self.end_requested = true,
                // It is the socket's owner that is due.
                None if must_serve.is_none_or(|limit| Instant::now() < limit) => {}
                None if is_killed => return Ok(End::Died(NOT_UP.to_owned())),
                None => {
                    tracing::error!("virt-launcher does not come up; it is killed");
                    // It may have exited just now.
                    let _ = kill_process(child, rustix::process::Signal::KILL);
                    is_killed = true;
                    deadline = os::time::deadline(KILL_TIMEOUT).into_std();
                }
            }
            if self.takes_signals && self.end_requested && !is_asked {
                ask_to_end(child);
                is_asked = true;
            }
        }
    }

    fn spawn(&self) -> Result<std::process::Child, MonitorError> {
        let start = |source| MonitorError::Start {
            program: self.program.clone(),
            source,
        };
        let input = match &self.socket {
            Some(owner) => Stdio::from(owner.for_launcher().map_err(start)?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.program);
        for (name, _) in self.restarts.to_environment() {
            command.env_remove(name);
        }
        command
            .args(&self.arguments)
            .stdin(input)
            // D-sup-12 (docs/differences.md).
            .envs([MALLOC_WITHOUT_CACHES])
            .envs(
                self.socket
                    .iter()
                    .flat_map(|_| self.restarts.to_environment()),
            )
            .spawn()
            .map_err(start)
    }
}

/// Sends SIGTERM. The launcher inherits it blocked, so the signal waits until the launcher handles
/// it.
fn ask_to_end(launcher: Pid) {
    tracing::info!("signalling virt-launcher to shut down");
    if let Err(error) = kill_process(launcher, rustix::process::Signal::TERM) {
        tracing::error!(reason = %error, "can't signal virt-launcher to shut down");
    }
}

const NOT_UP: &str = "it did not come up";

/// How a launcher has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// By itself, with this exit code.
    Exited(u8),
    /// By a signal, or before a restarted one served; of what.
    Died(String),
}

impl End {
    /// From wait(2)'s exit status or signal. The signal is left out if the monitor has killed it.
    fn of(exit_status: Option<i32>, signal: Option<i32>, has_served: bool) -> Self {
        match exit_status.and_then(|code| u8::try_from(code).ok()) {
            Some(code) if has_served || code == 0 => Self::Exited(code),
            Some(code) => Self::Died(format!("exit status {code}")),
            None => {
                let signal = signal.and_then(|number| Signal::try_from(number).ok());
                Self::Died(signal.map_or(NOT_UP, Signal::as_str).to_owned())
            }
        }
    }
}

/// The launcher beside this program's executable.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.parent()
        .unwrap_or(Path::new("/usr/bin"))
        .join("virt-launcher")
}

/// Times of the launcher's deaths.
#[derive(Debug, Default)]
struct Deaths(Vec<Instant>);

impl Deaths {
    /// Records a death at `now`.
    fn are_too_many(&mut self, now: Instant) -> bool {
        self.0
            .retain(|death| now.duration_since(*death) < DEATHS_WINDOW);
        self.0.push(now);
        self.0.len() >= MAX_DEATHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_death_in_a_minute_is_one_too_many() {
        let mut deaths = Deaths::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!deaths.are_too_many(at(0)) && !deaths.are_too_many(at(30)));
        assert!(!deaths.are_too_many(at(60)), "the first one is over");
        assert!(deaths.are_too_many(at(89)));
    }

    #[test]
    fn launchers_that_do_not_come_up_are_not_started_for_ever() {
        let mut deaths = Deaths::default();
        let begin = Instant::now();
        let times = u32::try_from(MAX_DEATHS).unwrap();
        let died = |time| begin + (SERVE_TIMEOUT + KILL_TIMEOUT) * time;
        assert!((0..times).any(|time| deaths.are_too_many(died(time))));
    }

    #[test]
    fn a_status_counts_once_the_launcher_has_served() {
        assert_eq!(End::of(Some(2), None, true), End::Exited(2));
        assert_eq!(
            End::of(Some(2), None, false),
            End::Died("exit status 2".into())
        );
        assert_eq!(End::of(Some(0), None, false), End::Exited(0));
        assert_eq!(End::of(None, Some(9), true), End::Died("SIGKILL".into()));
        assert_eq!(End::of(None, None, false), End::Died(NOT_UP.into()));
    }
}
