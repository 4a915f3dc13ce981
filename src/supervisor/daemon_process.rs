//! The process of libvirtd, virtqemud or virtlogd: a child, or one that a killed launcher has left behind.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use os::process::Process;

/// For a daemon to end after SIGTERM. It has no domain any more; only a hanging call to QEMU can keep it.
const STOP_GRACE: Duration = Duration::from_millis(300);

/// For a process that has lost its memory to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A daemon's process. It is killed when this value is dropped.
#[derive(Debug)]
pub enum DaemonProcess {
    /// A child, which is killed when it is dropped.
    Child(Child),
    /// Started by a previous launcher.
    Adopted(AdoptedProcess),
}

/// A process that another process has started, killed when it is dropped as a child would be.
#[derive(Debug)]
pub struct AdoptedProcess(Process);

impl Drop for AdoptedProcess {
    fn drop(&mut self) {
        // That it is gone already is what is wanted.
        drop(self.0.signal(Signal::KILL));
    }
}

impl DaemonProcess {
    /// What it writes, if that can be read here.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        match self {
            Self::Child(child) => child.stderr.take(),
            Self::Adopted(_) => None,
        }
    }

    /// Waits for its end; the status of a process that is not a child is not known.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Child(child) => child.wait().await.ok(),
            Self::Adopted(AdoptedProcess(process)) => {
                process.ended().await;
                None
            }
        }
    }

    /// Asks it to end, then makes it.
    // D-sup-5 (docs/differences.md).
    pub async fn end(&mut self) {
        self.signal(Signal::TERM);
        if timeout(STOP_GRACE, self.ended()).await.is_err() {
            self.kill().await;
        }
    }

    /// Makes it end.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended().await;
    }

    /// That it is gone already is what is wanted.
    fn signal(&self, signal: Signal) {
        match self {
            Self::Child(child) => {
                if let Some(pid) = child
                    .id()
                    .and_then(|id| i32::try_from(id).ok())
                    .and_then(Pid::from_raw)
                {
                    let _ = kill_process(pid, signal);
                }
            }
            Self::Adopted(AdoptedProcess(process)) => drop(process.signal(signal)),
        }
    }
}

/// Which process listens on a socket.
#[derive(Debug)]
pub enum SocketOwner {
    /// No process.
    None,
    /// A daemon that a previous launcher has started with the same command line.
    Previous(DaemonProcess),
    /// Another process.
    Foreign,
}

/// Finds out which process listens on `socket`. A daemon is a previous launcher's if it runs with exactly the `command`
/// that this one would run: that names paths below the root which no other daemon has. (A daemon logs an error for a
/// client that closes at once: not for those that this launcher has started.)
///
/// # Errors
/// If it can't be found out.
pub async fn socket_owner(socket: &Path, command: &[String]) -> io::Result<SocketOwner> {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        // Its backlog is full, so it is being served.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
        Err(_) => return Ok(SocketOwner::None),
    };
    let Some(pid) = stream.peer_cred()?.pid().and_then(Pid::from_raw) else {
        return Ok(SocketOwner::Foreign);
    };
    let process = match Process::open(pid) {
        Ok(process) => process,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            return Ok(SocketOwner::None);
        }
        Err(error) => return Err(error),
    };
    let arguments = process.arguments().unwrap_or_default();
    if arguments.is_empty() {
        // It was killed, and is just giving back its memory; its socket is the last to go.
        let _ = timeout(EXIT_TIMEOUT, process.ended()).await;
        return Ok(SocketOwner::None);
    }
    Ok(if arguments == command {
        SocketOwner::Previous(DaemonProcess::Adopted(AdoptedProcess(process)))
    } else {
        SocketOwner::Foreign
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(work)
    }

    #[test]
    fn a_socket_on_which_no_process_listens_has_no_owner() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        assert!(matches!(
            block_on(socket_owner(&socket, &[])).unwrap(),
            SocketOwner::None
        ));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(
            matches!(
                block_on(socket_owner(&socket, &[])).unwrap(),
                SocketOwner::None
            ),
            "left over"
        );
    }

    #[test]
    fn process_with_another_command_is_foreign_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        // This test serves it, and goes on.
        let other = ["/usr/sbin/libvirtd".to_owned()];
        assert!(matches!(
            block_on(socket_owner(&socket, &other)).unwrap(),
            SocketOwner::Foreign
        ));
    }

    #[test]
    fn process_that_is_no_child_is_ended() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        block_on(async {
            let mut running = DaemonProcess::Adopted(AdoptedProcess(Process::open(pid).unwrap()));
            running.end().await;
        });
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(15)
        );
    }
}
