//! What virt-launcher-monitor and a launcher that it may start again agree on
//! (`--restart-launcher`).
//!
//! The monitor keeps the command socket open and gives it to each launcher as its standard input:
//! while there is none, calls wait in the socket's queue. A launcher that serves tells the monitor
//! by SIGUSR1.

use std::ffi::OsString;
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::{listen, sockopt};
use rustix::process::{Signal, getppid, kill_process};

use super::Root;
use api::pod_paths::LAUNCHER_UPGRADE;
use os::small_file;

/// Connections that may wait for a launcher: listen(2).
const MAX_WAITING: i32 = 128;

/// Binds the command socket under its first name, with the umask's mode; removes the sockets of an
/// earlier pod.
///
/// # Errors
/// If it cannot be bound.
pub fn bind(starting: &Path, ready: &Path) -> io::Result<UnixListener> {
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

/// The socket that the monitor has bound to `starting`, if standard input is that one. From now on
/// it is this process's: virt-handler finds the launcher by the process that has called listen(2)
/// last.
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
    listen(&listener, MAX_WAITING).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Exit status of a launcher that has handed over: the monitor starts the executable of
/// [`take_upgrade`].
pub const HANDED_OVER: u8 = 80;

/// Longest path of an executable: PATH_MAX.
const MAX_EXECUTABLE_BYTES: u64 = 4096;

/// Notes which executable takes over.
///
/// # Errors
/// If that cannot be written.
pub fn request_upgrade(root: &Root, executable: &Path) -> io::Result<()> {
    let file = root.path(LAUNCHER_UPGRADE);
    small_file::replace(&file, executable.as_os_str().as_bytes())
}

/// Which executable takes over, once.
///
/// # Errors
/// If none was noted.
pub fn take_upgrade(root: &Root) -> io::Result<PathBuf> {
    let file = root.path(LAUNCHER_UPGRADE);
    let path = small_file::read(&file, MAX_EXECUTABLE_BYTES)?;
    std::fs::remove_file(&file)?;
    Ok(PathBuf::from(OsString::from_vec(path)))
}

/// Tells the monitor that this launcher serves.
///
/// # Errors
/// If there is no parent that may be signalled.
pub fn report_ready() -> io::Result<()> {
    let parent = getppid().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(kill_process(parent, Signal::USR1)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_upgrade_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.path(LAUNCHER_UPGRADE).parent().unwrap()).unwrap();
        request_upgrade(&root, Path::new("/usr/bin/new")).unwrap();
        assert_eq!(take_upgrade(&root).unwrap(), Path::new("/usr/bin/new"));
        assert!(take_upgrade(&root).is_err());
    }

    #[test]
    fn sockets_of_an_earlier_pod_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (starting, ready) = (dir.path().join("sockets/init"), dir.path().join("ready"));
        std::fs::write(&ready, "").unwrap();
        drop(bind(&starting, &ready).unwrap());
        let _listener = bind(&starting, &ready).unwrap();
        assert!(starting.exists() && !ready.exists());
        assert!(inherited(&starting).is_none(), "it is not standard input");
    }
}
