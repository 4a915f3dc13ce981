//! libvirt's daemons as children of the command socket's owner: the launcher asks the owner, by a
//! socket that the monitor gives to both, to start them.
//!
//! virt-handler looks for virtqemud among the owner's children, and the owner outlives launchers
//! (`restart`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::process::ChildStderr;
use tokio::time::timeout;

use crate::restart::own_command_socket;
use os::descriptors::{message_sockets, receive, send};
use os::process::Process;

/// Limit for the owner's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The launcher's request, with two descriptors: the program's standard error, and a socket for the
/// [`Answer`].
#[derive(Serialize, Deserialize)]
struct Request {
    program: OsString,
    arguments: Vec<OsString>,
    /// What differs from the owner's environment; `None` removes a variable.
    environment: Vec<(OsString, Option<OsString>)>,
}

/// The program's number, with a descriptor of its process; or why it does not run.
type Answer = Result<i32, String>;

impl Request {
    fn of(command: &Command) -> Self {
        let text = OsStr::to_owned;
        Self {
            program: text(command.get_program()),
            arguments: command.get_args().map(text).collect(),
            environment: command
                .get_envs()
                .map(|(name, value)| (text(name), value.map(text)))
                .collect(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Has the owner behind `owner` start the program in a process group of its own. Only its
/// arguments and its environment are taken from `command`.
///
/// # Errors
/// The owner cannot start it, or does not answer.
pub async fn start(owner: impl AsFd, command: &Command) -> io::Result<(Process, ChildStderr)> {
    let (stderr, programs) = io::pipe()?;
    let (answer, owners) = message_sockets()?;
    let request = serde_json::to_vec(&Request::of(command))?;
    send(owner, &request, &[programs.as_fd(), owners.as_fd()])?;
    drop((programs, owners));
    let answer = pipe::Receiver::from_owned_fd_unchecked(answer)?;
    // What comes at the last moment counts.
    let _ = timeout(ANSWER_TIMEOUT, answer.readable()).await;
    let (message, descriptors) = receive(&answer, RecvFlags::DONTWAIT)?;
    if message.is_empty() {
        let gone = "the command socket's owner has ended, or has no descriptors left";
        return Err(io::Error::other(gone));
    }
    let pid = serde_json::from_slice::<Answer>(&message)?.map_err(io::Error::other)?;
    let process = Pid::from_raw(pid).zip(descriptors.into_iter().next());
    let (pid, descriptor) = process.ok_or(io::ErrorKind::InvalidData)?;
    let stderr = ChildStderr::from_std(process::ChildStderr::from(OwnedFd::from(stderr)))?;
    Ok((Process::of(pid, descriptor)?, stderr))
}

/// Serves the monitor and the launchers behind `launchers`, as long as the monitor runs: a message
/// with one descriptor is the command socket, which this process is to own; then it `is_ready`. One
/// with two is a [`Request`].
///
/// # Errors
/// Messages cannot be received, or the socket cannot be owned.
pub fn serve(launchers: impl AsFd, is_ready: impl Fn()) -> io::Result<()> {
    let mut children: Vec<(Vec<u8>, process::Child)> = Vec::new();
    loop {
        let (message, descriptors) = receive(&launchers, RecvFlags::empty())?;
        // Reaped now: the next request follows an end within seconds.
        children.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        match descriptors.as_slice() {
            [socket] => {
                own_command_socket(socket)?;
                is_ready();
            }
            [stderr, launcher] => {
                // Launchers take over a daemon that serves. One that does not yet, because its
                // launcher died first, would keep the next from starting.
                for (_, child) in children.iter_mut().filter(|(same, _)| *same == message) {
                    let _ = child.kill();
                }
                let child = start_for(launcher, &message, stderr);
                children.extend(child.map(|child| (message, child)));
            }
            _ if message.is_empty() => return Ok(()),
            _ => {}
        }
    }
}

/// Tells the launcher, if it is still there. A program of which it does not hear is killed.
fn start_for(launcher: &OwnedFd, request: &[u8], stderr: &OwnedFd) -> Option<process::Child> {
    let mut child = match spawn(request, stderr) {
        Ok(child) => child,
        Err(error) => {
            let answer = serde_json::to_vec(&Answer::Err(error.to_string()));
            let _ = send(launcher, &answer.unwrap_or_default(), &[]);
            return None;
        }
    };
    let pid = Pid::from_child(&child);
    let tell = || -> io::Result<()> {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let answer = serde_json::to_vec(&Answer::Ok(pid.as_raw_nonzero().get()))?;
        send(launcher, &answer, &[process.as_fd()])
    };
    if tell().is_err() {
        let _ = child.kill();
    }
    Some(child)
}

fn spawn(request: &[u8], stderr: &OwnedFd) -> io::Result<process::Child> {
    let mut command = serde_json::from_slice::<Request>(request)?.command();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone()?)
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::io::AsyncReadExt;

    fn owner() -> OwnedFd {
        let (launcher, owner) = message_sockets().unwrap();
        thread::spawn(move || serve(owner, || ()));
        launcher
    }

    #[tokio::test]
    async fn a_program_gets_its_environment_and_is_followed_to_its_end() {
        let owner = owner();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $A ${HOME-none} $PPID >&2; sleep 600"]);
        command.env("A", "a b").env_remove("HOME");
        let (process, mut stderr) = start(&owner, &command).await.unwrap();
        let mut said = [0; 100];
        let length = stderr.read(&mut said).await.unwrap();
        let own = format!("a b none {}\n", process::id());
        assert_eq!(String::from_utf8_lossy(&said[..length]), own);
        process.signal(rustix::process::Signal::KILL).unwrap();
        process.ended().await;
    }

    #[tokio::test]
    async fn a_program_that_no_launcher_has_taken_over_does_not_run_twice() {
        let owner = owner();
        let sleep = |seconds| {
            let mut command = Command::new("/bin/sleep");
            command.arg(seconds);
            command
        };
        let (another, _) = start(&owner, &sleep("601")).await.unwrap();
        let (first, _) = start(&owner, &sleep("600")).await.unwrap();
        let (next, _) = start(&owner, &sleep("600")).await.unwrap();
        first.ended().await;
        for process in [another, next] {
            process.signal(rustix::process::Signal::KILL).unwrap();
        }
    }

    #[tokio::test]
    async fn why_a_program_does_not_run_reaches_the_launcher() {
        let started = start(owner(), &Command::new("/nonexistent/virtqemud")).await;
        let error = started.unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    #[tokio::test]
    async fn an_owner_that_ends_is_no_owner_that_is_waited_for() {
        let (launcher, owner) = message_sockets().unwrap();
        let ends = thread::spawn(move || receive(&owner, RecvFlags::empty()).map(drop));
        assert!(start(&launcher, &Command::new("/bin/true")).await.is_err());
        ends.join().unwrap().unwrap();
    }
}
