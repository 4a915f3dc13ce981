//! How virt-launcher-monitor and a launcher that it may start again work together
//! (`--restart-launcher`, or an image that is built with `RESTART_LAUNCHER=yes`).
//!
//! The monitor keeps the command socket open. A process that outlives launchers owns it, and
//! libvirt's daemons are its children (`daemons_parent`). Each launcher's standard input is a
//! socket to that process, in which the monitor has put the command socket; its environment says
//! what has become of the earlier launchers ([`Restarts`]). While no launcher runs, calls wait in
//! the command socket's queue. A launcher that serves tells the monitor by SIGUSR1.

use std::env;
use std::io::{self, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::net::{RecvFlags, listen};
use rustix::process::{Signal, getppid, kill_process};

use os::descriptors::receive;

/// Connections that may wait for a launcher: listen(2).
const MAX_WAITING: i32 = 128;

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

/// This launcher's socket to the owner of the command socket, if the monitor starts it again.
pub fn socket_to_owner() -> Option<OwnedFd> {
    Restarts::of_environment()?;
    stdin().as_fd().try_clone_to_owned().ok()
}

/// The socket that the monitor has bound to `starting`.
pub fn inherited(starting: &Path) -> Option<UnixListener> {
    let (_, descriptors) = receive(socket_to_owner()?, RecvFlags::DONTWAIT).ok()?;
    let listener = UnixListener::from(descriptors.into_iter().next()?);
    let address = listener.local_addr().ok()?;
    if address.as_pathname() != Some(starting) {
        return None;
    }
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Tells the monitor that this launcher serves.
///
/// # Errors
/// If there is no parent that may be signalled.
pub fn report_ready() -> io::Result<()> {
    let monitor = getppid().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(kill_process(monitor, Signal::USR1)?)
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
        assert!(
            inherited(&starting).is_none(),
            "this process has no monitor"
        );
    }
}
