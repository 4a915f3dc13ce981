//! The launcher's process: started, signalled, and with `--restart-launcher` restarted after it is
//! killed.
//!
//! ```text
//!   start ─► running ──exit──► its exit code
//!     ▲         │ has handed over: the new executable, and the old one again if that does not serve
//!     ├─────────┤
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
use pod::Root;
use pod::restart::HANDED_OVER;

/// The monitor's exit code if a signal (SIGKILL) killed the launcher, as in the reference.
const KILLED_BY_SIGNAL: u8 = 255;
/// Deaths within [`DEATHS_WINDOW`] after which the launcher is not restarted.
const MAX_DEATHS: usize = 3;
/// Limit for a new executable to serve; then the previous one is started again.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);
const DEATHS_WINDOW: Duration = Duration::from_secs(60);

/// The launcher across restarts.
// D-sup-16 (docs/differences.md).
pub struct Launcher<'a> {
    program: PathBuf,
    /// The executable before an upgrade, kept until the new one serves.
    previous: Option<PathBuf>,
    root: Root,
    arguments: Vec<OsString>,
    signals: &'a SignalQueue,
    /// Set with `--restart-launcher`.
    socket: Option<OwnedFd>,
    deaths: Deaths,
    /// Whether a signal has asked it to end.
    end_requested: bool,
}

/// How a process of the launcher has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exited(u8),
    /// Killed by a signal, or restarted and failed before it served.
    Died,
    /// Another executable takes over.
    HandedOver,
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
            previous: None,
            root: options.root.clone(),
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
            let (end, has_served) = match self.run_once(is_first) {
                Err(error) if self.previous.is_some() => {
                    tracing::error!(reason = %os::logging::chain(&error), "The new virt-launcher does not start");
                    (End::Died, false)
                }
                result => result?,
            };
            is_first = false;
            let previous = self.previous.take();
            match end {
                End::Exited(status) => return Ok(status),
                End::HandedOver => self.upgrade(),
                End::Died => {
                    if let Some(previous) = previous.filter(|_| !has_served) {
                        tracing::error!(
                            "{} did not come up; going back to {}",
                            self.program.display(),
                            previous.display()
                        );
                        self.program = previous;
                    } else if self.socket.is_none() {
                        return Ok(KILLED_BY_SIGNAL);
                    } else if self.deaths.are_too_many(Instant::now()) {
                        tracing::error!(
                            "virt-launcher has died {MAX_DEATHS} times in {} s; giving up",
                            DEATHS_WINDOW.as_secs()
                        );
                        return Ok(KILLED_BY_SIGNAL);
                    } else {
                        tracing::warn!("virt-launcher has died; starting it again");
                    }
                }
            }
        }
    }

    /// The launcher has handed over: starts its successor next, which must serve in time.
    fn upgrade(&mut self) {
        match pod::restart::take_upgrade(&self.root) {
            Ok(program) => {
                tracing::info!("virt-launcher has handed over to {}", program.display());
                self.previous = Some(std::mem::replace(&mut self.program, program));
            }
            Err(error) => {
                tracing::error!(reason = %error, "It is not known which executable takes over; starting the same");
            }
        }
    }

    /// Runs one process to its end. Returns whether it has served; a successor must do so in time.
    fn run_once(&mut self, is_first: bool) -> Result<(End, bool), MonitorError> {
        let child = Pid::from_child(&self.spawn()?);
        // The first process has no guest yet, so a signal may end it at any time.
        let mut takes_signals = is_first;
        let serve_by = self.previous.is_some().then(|| {
            let now = Instant::now();
            now.checked_add(SERVE_TIMEOUT).unwrap_or(now)
        });
        let mut is_asked = false;
        loop {
            let must_serve = serve_by.filter(|_| !takes_signals);
            match self
                .signals
                .next(must_serve)
                .map_err(MonitorError::Signals)?
            {
                Some(Signal::SIGCHLD) => {
                    let ended = reap();
                    if let Some((_, status)) = ended.iter().find(|(pid, _)| *pid == child) {
                        tracing::info!("Reaped Launcher main pid");
                        return Ok((end(status.exit_status(), takes_signals), takes_signals));
                    }
                }
                Some(Signal::SIGUSR1) => takes_signals = true,
                Some(_) => self.end_requested = true,
                None if must_serve.is_some_and(|deadline| Instant::now() >= deadline) => {
                    // It may have exited just now.
                    let _ = kill_process(child, rustix::process::Signal::KILL);
                }
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

/// What the launcher's exit code (`exit_status`) means; it is `None` after a death by a signal.
fn end(exit_status: Option<i32>, has_served: bool) -> End {
    match exit_status.and_then(|code| u8::try_from(code).ok()) {
        Some(HANDED_OVER) if has_served => End::HandedOver,
        Some(code) if has_served || code == 0 => End::Exited(code),
        _ => End::Died,
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
    fn a_status_counts_once_the_launcher_has_served() {
        assert_eq!(end(Some(2), true), End::Exited(2));
        assert_eq!(end(Some(2), false), End::Died);
        assert_eq!(end(Some(0), false), End::Exited(0));
        assert_eq!(end(Some(80), true), End::HandedOver);
        assert_eq!(end(None, true), End::Died);
    }
}
