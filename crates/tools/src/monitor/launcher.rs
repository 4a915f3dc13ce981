//! The launcher's process: started, signalled, and with `--restart-launcher` restarted after it is
//! killed.
//!
//! ```text
//!   start ─► running ──exit──► its exit code
//!     ▲         │ killed
//!     └─────────┴── the third time in a minute ──► 255
//! ```
//! The next launcher takes over libvirt's daemons and the guest. Signals wait until it serves: an
//! earlier one would end the launcher but not the guest.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::process::{Pid, kill_process};

use super::options::Options;
use super::{MonitorError, reap};
use os::process::MALLOC_WITHOUT_CACHES;
use os::signals::SignalQueue;

/// The monitor's exit code if a signal (SIGKILL) killed the launcher, as in the reference.
const KILLED_BY_SIGNAL: u8 = 255;
/// Deaths within [`DEATHS_WINDOW`] after which the launcher is not restarted.
const MAX_DEATHS: usize = 3;
const DEATHS_WINDOW: Duration = Duration::from_secs(60);

/// The launcher across restarts.
// D-sup-16 (docs/differences.md).
pub struct Launcher<'a> {
    program: PathBuf,
    arguments: Vec<OsString>,
    signals: &'a SignalQueue,
    /// Set with `--restart-launcher`.
    socket: Option<OwnedFd>,
    deaths: Deaths,
    /// Whether a signal has asked it to end.
    end_requested: bool,
}

impl<'a> Launcher<'a> {
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
            pod::restart::bind(starting, ready).map_err(|source| MonitorError::Socket {
                path: starting.clone(),
                source,
            })
        });
        Ok(Self {
            program: program(),
            arguments,
            signals,
            socket: socket.transpose()?.map(OwnedFd::from),
            deaths: Deaths::default(),
            end_requested: false,
        })
    }

    /// Runs the launcher to its end and returns its exit code.
    ///
    /// # Errors
    /// It cannot be started, or signals cannot be received.
    pub fn run(&mut self) -> Result<u8, MonitorError> {
        let mut is_first = true;
        loop {
            if let Some(status) = self.run_once(is_first)? {
                return Ok(status);
            }
            is_first = false;
            if self.socket.is_none() {
                return Ok(KILLED_BY_SIGNAL);
            }
            if self.deaths.are_too_many(Instant::now()) {
                tracing::error!(
                    "virt-launcher has died {MAX_DEATHS} times in {} s; giving up",
                    DEATHS_WINDOW.as_secs()
                );
                return Ok(KILLED_BY_SIGNAL);
            }
            tracing::warn!("virt-launcher has died; starting it again");
        }
    }

    /// Runs one process to its end. Returns its exit code, or `None` if it has died.
    fn run_once(&mut self, is_first: bool) -> Result<Option<u8>, MonitorError> {
        let child = Pid::from_child(&self.spawn()?);
        // The first process has no guest yet, so a signal may end it at any time.
        let mut takes_signals = is_first;
        let mut is_asked = false;
        loop {
            match self.signals.next(None).map_err(MonitorError::Signals)? {
                Some(Signal::SIGCHLD) => {
                    let ended = reap();
                    if let Some((_, status)) = ended.iter().find(|(pid, _)| *pid == child) {
                        tracing::info!("Reaped Launcher main pid");
                        return Ok(exit_code(status.exit_status(), takes_signals));
                    }
                }
                Some(Signal::SIGUSR1) => takes_signals = true,
                Some(_) => self.end_requested = true,
                None => {}
            }
            if takes_signals && self.end_requested && !is_asked {
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
            Some(socket) => Stdio::from(socket.try_clone().map_err(start)?),
            None => Stdio::null(),
        };
        Command::new(&self.program)
            .args(&self.arguments)
            .stdin(input)
            // D-sup-12 (docs/differences.md).
            .envs([MALLOC_WITHOUT_CACHES])
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

/// The launcher's exit code (`exit_status`). It is `None` after a death: by a signal, or of a
/// restarted launcher that has failed before it served.
fn exit_code(exit_status: Option<i32>, has_served: bool) -> Option<u8> {
    let code = u8::try_from(exit_status?).ok()?;
    (has_served || code == 0).then_some(code)
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
    fn a_status_counts_once_the_launcher_has_served() {
        assert_eq!(exit_code(Some(2), true), Some(2));
        assert_eq!(exit_code(Some(2), false), None);
        assert_eq!(exit_code(Some(0), false), Some(0));
        assert_eq!(exit_code(None, true), None);
    }
}
