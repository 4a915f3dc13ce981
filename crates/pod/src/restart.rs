//! How virt-launcher-monitor and a launcher that it may start again work together
//! (`--restart-launcher`, or an image that is built with `RESTART_LAUNCHER=yes`).
//!
//! The monitor keeps the command socket open and gives it to each launcher as its standard input,
//! and in the environment what has become of the earlier ones ([`Restarts`]). While there is no
//! launcher, calls wait in the socket's queue. The first launcher owns the socket; once it has
//! died, or asks for it by SIGUSR2, a process that outlives launchers does. A launcher that serves
//! tells the monitor by SIGUSR1.

use std::env;
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::net::{listen, sockopt};
use rustix::process::{Signal, getpid, getppid, kill_process};

use crate::flags::LauncherFlags;
use api::pod_paths::COMMAND_SOCKET;
use api::vmi::Vmi;

/// Connections that may wait for a launcher: listen(2).
const MAX_WAITING: i32 = 128;

/// Looks at the socket's owner until the launcher gives up, at [`HAND_OVER_INTERVAL`]: 2 s in all.
const HAND_OVER_LOOKS: u32 = 200;
const HAND_OVER_INTERVAL: Duration = Duration::from_millis(10);

/// Variable of the image's environment: `yes` starts a launcher that dies again.
const IMAGES_SWITCH: &str = "RESTART_LAUNCHER";
const COUNT: &str = "LAUNCHER_RESTARTS";
const CAUSE: &str = "LAUNCHER_DIED_OF";

/// Whether whoever built the image wants a launcher that dies to be started again.
pub fn is_on_in_image() -> bool {
    env::var_os(IMAGES_SWITCH).is_some_and(|value| value == "yes")
}

/// The launchers of this pod before this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restarts {
    /// How many have died.
    pub count: u32,
    /// What the last one died of, such as `SIGKILL`; empty before the first death.
    pub cause: String,
}

impl Restarts {
    /// What the monitor says; `None` if it starts no launcher again.
    pub fn of_environment() -> Option<Self> {
        let count = env::var(COUNT).ok()?.parse().ok()?;
        let cause = env::var(CAUSE).unwrap_or_default();
        Some(Self { count, cause })
    }

    /// For the environment of the next launcher.
    pub fn to_environment(&self) -> [(&'static str, String); 2] {
        [(COUNT, self.count.to_string()), (CAUSE, self.cause.clone())]
    }
}

/// Binds the command socket under its first name, with the umask's mode; removes the sockets of an
/// earlier pod.
///
/// # Errors
/// If it cannot be bound.
pub fn bind_command_socket(starting: &Path, ready: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = starting.parent() {
        std::fs::create_dir_all(dir)?;
    }
    for stale in [starting, ready] {
        match std::fs::remove_file(stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    UnixListener::bind(starting)
}

/// Makes this process the one that virt-handler finds behind the socket (SO_PEERCRED).
///
/// # Errors
/// If listen(2) fails.
pub fn own_command_socket(socket: impl AsFd) -> io::Result<()> {
    Ok(listen(socket, MAX_WAITING)?)
}

/// The socket that the monitor has bound to `starting`, if that is standard input.
pub fn inherited(starting: &Path) -> Option<UnixListener> {
    let input = stdin().as_fd().try_clone_to_owned().ok()?;
    if !sockopt::socket_acceptconn(&input).ok()? {
        return None;
    }
    let listener = UnixListener::from(input);
    let address = listener.local_addr().ok()?;
    if address.as_pathname() != Some(starting) {
        return None;
    }
    if Restarts::of_environment().is_none_or(|restarts| restarts.count == 0) {
        own_command_socket(&listener).ok()?;
    }
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Tells the monitor that this launcher serves.
///
/// # Errors
/// If there is no parent that may be signalled.
pub fn report_ready() -> io::Result<()> {
    signal_monitor(Signal::USR1)
}

/// Gives the command socket to an owner that outlives this launcher, if the monitor starts
/// launchers again, before a migration to this pod. virt-handler reaches QEMU's sockets by the
/// owner's `/proc/PID/root` to the end, and looks for virtqemud among the owner's children if it
/// raises the limit of locked memory.
// D-sup-16 (docs/differences.md).
pub fn hand_over_command_socket(vmi: &Vmi, flags: &LauncherFlags) {
    if Restarts::of_environment().is_some()
        && !vmi.needs_locked_memory()
        && let Err(error) = hand_over(&flags.shared(COMMAND_SOCKET))
    {
        tracing::warn!(reason = %error, "The migration needs this launcher to its end");
    }
}

/// Returns once another process owns the socket.
fn hand_over(socket: &Path) -> io::Result<()> {
    signal_monitor(Signal::USR2)?;
    for _ in 0..HAND_OVER_LOOKS {
        if sockopt::socket_peercred(UnixStream::connect(socket)?)?.pid != getpid() {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "no event tells of listen(2)")]
        sleep(HAND_OVER_INTERVAL);
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn signal_monitor(signal: Signal) -> io::Result<()> {
    let monitor = getppid().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(kill_process(monitor, signal)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_an_earlier_pod_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (starting, ready) = (dir.path().join("sockets/init"), dir.path().join("ready"));
        std::fs::write(&ready, "").unwrap();
        drop(bind_command_socket(&starting, &ready).unwrap());
        let _listener = bind_command_socket(&starting, &ready).unwrap();
        assert!(starting.exists() && !ready.exists());
        assert!(inherited(&starting).is_none(), "it is not standard input");
    }
}
