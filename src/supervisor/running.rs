//! The process of a daemon: a child, or one that an earlier launcher has left behind when it was killed.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use super::process::Process;

/// For a daemon to end by itself. It has no domain any more; what may keep it is a question that nobody answers.
const GOODBYE: Duration = Duration::from_millis(300);

/// A daemon's process. It ends with this value.
#[derive(Debug)]
pub enum Running {
    /// A child, which is killed when it is dropped.
    Child(Child),
    /// Started by an earlier launcher.
    Left(Left),
}

/// A process that somebody else has started, killed when it is dropped as a child would be.
#[derive(Debug)]
pub struct Left(Process);

impl Drop for Left {
    fn drop(&mut self) {
        // That it is gone already is what is wanted.
        drop(self.0.signal(Signal::KILL));
    }
}

impl Running {
    /// What it writes, if that can be read here.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        match self {
            Self::Child(child) => child.stderr.take(),
            Self::Left(_) => None,
        }
    }

    /// Waits for its end; how a process ended that is no child is not known.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Child(child) => child.wait().await.ok(),
            Self::Left(Left(process)) => {
                process.gone().await;
                None
            }
        }
    }

    /// Asks it to end, then makes it.
    // D-sup-5 (docs/differences.md).
    pub async fn end(&mut self) {
        self.signal(Signal::TERM);
        if timeout(GOODBYE, self.ended()).await.is_err() {
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
            Self::Left(Left(process)) => drop(process.signal(signal)),
        }
    }
}

/// Who serves a socket.
#[derive(Debug)]
pub enum Server {
    /// Nobody.
    Nobody,
    /// What an earlier launcher has started with the same command line.
    Ours(Running),
    /// Another one.
    Foreign,
}

/// Looks who serves `socket`. A daemon is an earlier launcher's if it runs with exactly the `command` that this one
/// would run: that names paths below the root which no other daemon has. (A daemon logs an error for a client that says
/// nothing: not to be asked of one that this launcher has started.)
///
/// # Errors
/// If it can't be told.
pub async fn server(socket: &Path, command: &[String]) -> io::Result<Server> {
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        // Its backlog is full, so that somebody does serve it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
        Err(_) => return Ok(Server::Nobody),
    };
    let Some(pid) = stream.peer_cred()?.pid().and_then(Pid::from_raw) else {
        return Ok(Server::Foreign);
    };
    let process = match Process::open(pid) {
        Ok(process) => process,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            return Ok(Server::Nobody);
        }
        Err(error) => return Err(error),
    };
    let ours = process.command()? == command;
    Ok(if ours {
        Server::Ours(Running::Left(Left(process)))
    } else {
        Server::Foreign
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
    fn socket_without_a_server_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        assert!(matches!(
            block_on(server(&socket, &[])).unwrap(),
            Server::Nobody
        ));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(
            matches!(block_on(server(&socket, &[])).unwrap(), Server::Nobody),
            "left over"
        );
    }

    #[test]
    fn server_with_another_command_is_foreign_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        // This test serves it, and goes on.
        let other = ["/usr/sbin/libvirtd".to_owned()];
        assert!(matches!(
            block_on(server(&socket, &other)).unwrap(),
            Server::Foreign
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
            let mut running = Running::Left(Left(Process::open(pid).unwrap()));
            running.end().await;
        });
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(15)
        );
    }
}
