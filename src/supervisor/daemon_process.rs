//! The process of libvirtd, virtqemud or virtlogd: a child, or one that another process started.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use os::process::Process;

/// Time between SIGTERM and SIGKILL. The daemon has no domain any more, so only a hanging call to
/// QEMU can delay its exit.
const STOP_GRACE: Duration = Duration::from_millis(300);

/// Limit for the exit of a killed process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A daemon's process, killed on drop.
#[derive(Debug)]
pub struct DaemonProcess {
    process: Process,
    /// `None` of a daemon that a previous launcher has left behind.
    pub stderr: Option<ChildStderr>,
    /// `None` if this process is not its parent.
    child: Option<Box<Child>>,
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl DaemonProcess {
    pub fn of_child(mut child: Child) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).ok_or(ErrorKind::NotFound)?;
        Ok(Self {
            process: Process::open(pid)?,
            stderr: child.stderr.take(),
            child: Some(Box::new(child)),
        })
    }

    pub fn of_other(process: Process, stderr: Option<ChildStderr>) -> Self {
        Self {
            process,
            stderr,
            child: None,
        }
    }

    /// Waits for the daemon's exit. The status is known only for a child.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended().await;
        self.child.as_mut()?.wait().await.ok()
    }

    /// Sends SIGTERM, then SIGKILL.
    // D-sup-5 (docs/differences.md).
    pub async fn end(&mut self) {
        self.signal(Signal::TERM);
        if timeout(STOP_GRACE, self.ended()).await.is_err() {
            self.kill().await;
        }
    }

    /// Kills the daemon and waits a second at most for its exit: a file system that hangs may keep
    /// a killed process.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = timeout(EXIT_TIMEOUT, self.ended()).await;
    }

    /// Ignores an error: the process is already gone.
    fn signal(&self, signal: Signal) {
        drop(self.process.signal(signal));
    }
}

/// The process that listens on a socket.
#[derive(Debug)]
pub enum SocketOwner {
    None,
    /// A daemon that a previous launcher started with the same command line.
    Previous(DaemonProcess),
    /// Any other process, on this socket.
    Foreign(PathBuf),
}

/// Determines which process listens on `socket`: a daemon to take over, or another's. A daemon
/// is a previous launcher's if its command line is exactly `command`: it names paths below the root
/// that no other daemon has, or the socket is below the root, as virtlogd's is. (A daemon logs an
/// error for a client that disconnects at once, so daemons that this launcher started are not
/// checked.)
///
/// # Errors
/// The process cannot be determined.
pub async fn socket_owner(socket: &Path, command: &[String]) -> io::Result<SocketOwner> {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(SocketOwner::None);
        }
        // An error such as a full backlog shows that a process serves the socket.
        Err(error) => return Err(error),
    };
    let Some(pid) = stream.peer_cred()?.pid().and_then(Pid::from_raw) else {
        return Ok(SocketOwner::Foreign(socket.into()));
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
        // The process was killed and is releasing its memory. The socket closes last.
        let _ = timeout(EXIT_TIMEOUT, process.ended()).await;
        return Ok(SocketOwner::None);
    }
    Ok(if arguments == command {
        SocketOwner::Previous(DaemonProcess::of_other(process, None))
    } else {
        SocketOwner::Foreign(socket.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_on_which_no_process_listens_has_no_owner() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        assert!(matches!(
            socket_owner(&socket, &[]).await.unwrap(),
            SocketOwner::None
        ));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(
            matches!(socket_owner(&socket, &[]).await.unwrap(), SocketOwner::None),
            "left over"
        );
        // An unknown owner is an error: a second daemon would not know the first one's guest.
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        let unknown = socket_owner(&circle, &[]).await;
        assert!(unknown.is_err(), "{unknown:?}");
    }

    #[tokio::test]
    async fn process_with_another_command_is_foreign_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        // This test serves the socket, and survives.
        let other = ["/usr/sbin/libvirtd".to_owned()];
        assert!(matches!(
            socket_owner(&socket, &other).await.unwrap(),
            SocketOwner::Foreign(_)
        ));
    }

    #[tokio::test]
    async fn process_that_is_no_child_is_ended() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let mut running = DaemonProcess::of_other(Process::open(pid).unwrap(), None);
        running.end().await;
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(15)
        );
    }
}
