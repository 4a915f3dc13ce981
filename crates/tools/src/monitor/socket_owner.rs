//! A child of the monitor that owns the command socket and starts libvirt's daemons, so that a
//! launcher's death changes neither.
//!
//! virt-handler knows the pod by the process that has called listen(2) last. It looks for virtqemud
//! among that process's children and for QEMU among its parent's, and reaches the pod's sockets and
//! its network by `/proc/PID`.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitStatus, set_parent_process_death_signal};

use super::privileges::raise_ambient;
use os::descriptors::{message_sockets, send};
use os::poll::poll_for;

/// The only argument of the monitor's executable that is to be the owner, with the socket to
/// launchers as its standard input. It writes a byte to its standard output once it is ready.
const ARGUMENT: &str = "own-command-socket";
/// Limit for the process to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time between two starts: a process that cannot run must not be started without end.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// The command socket, the monitor's child that owns it, and the socket between launchers and it.
pub struct CommandSocketOwner {
    socket: OwnedFd,
    launchers: OwnedFd,
    owners: OwnedFd,
    /// `None` as long as it is to be started again.
    process: Option<Pid>,
    next_start: Instant,
}

impl CommandSocketOwner {
    /// Starts the process, and waits until it owns the socket.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(socket: OwnedFd) -> io::Result<Self> {
        let (launchers, owners) = message_sockets()?;
        let mut owner = Self {
            socket,
            launchers,
            owners,
            process: None,
            next_start: os::time::deadline(START_INTERVAL).into_std(),
        };
        owner.process = Some(owner.start_process()?);
        Ok(owner)
    }

    /// What a new launcher gets as its standard input: the way to the owner, and in it the socket.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn for_launcher(&self) -> io::Result<OwnedFd> {
        send(&self.owners, b"socket", &[self.socket.as_fd()])?;
        self.launchers.try_clone()
    }

    /// Takes note of the children that have `ended`.
    pub fn note_ended(&mut self, ended: &[(Pid, WaitStatus)]) {
        if ended.iter().any(|(pid, _)| Some(*pid) == self.process) {
            tracing::warn!("The command socket's owner has died; starting it again");
            self.process = None;
            // Until the next one does: virt-handler cannot reach the pod by a process that is gone.
            drop(pod::restart::own_command_socket(&self.socket));
        }
    }

    /// Starts the process again if it is not there. If that has to wait, returns until when.
    pub fn start_in_time(&mut self) -> Option<Instant> {
        if self.process.is_some() {
            return None;
        }
        if Instant::now() < self.next_start {
            return Some(self.next_start);
        }
        self.next_start = os::time::deadline(START_INTERVAL).into_std();
        let process = self.start_process().inspect_err(|error| {
            tracing::error!(reason = %error, "The monitor owns the command socket: virt-handler does not find QEMU, and libvirt's daemons do not start again");
        });
        self.process = process.ok();
        self.process.is_none().then_some(self.next_start)
    }

    /// Returns once the process owns the socket.
    fn start_process(&self) -> io::Result<Pid> {
        let (says, ready) = io::pipe()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .stdin(self.owners.try_clone()?)
            .stdout(ready)
            // Ctrl-C in a terminal does not reach it.
            .process_group(0)
            .spawn()?;
        let asked = send(&self.launchers, b"own", &[self.socket.as_fd()]);
        if let Err(error) = asked.and_then(|()| wait_until_ready(says)) {
            let _ = child.kill();
            return Err(error);
        }
        Ok(Pid::from_child(&child))
    }
}

/// Waits for the byte of the new process.
fn wait_until_ready(mut says: PipeReader) -> io::Result<()> {
    let mut answers = [PollFd::new(&says, PollFlags::IN)];
    if poll_for(&mut answers, Some(START_TIMEOUT))? && says.read(&mut [0])? == 1 {
        return Ok(());
    }
    Err(io::Error::other("it does not say that it is ready"))
}

/// Whether this process is the owner, and not the monitor.
pub fn is_meant(arguments: &[OsString]) -> bool {
    matches!(arguments, [only] if only == ARGUMENT)
}

/// Owns the socket, and starts daemons, until the monitor ends.
pub fn main() -> ExitCode {
    // The daemons inherit which signals are blocked, and need the launcher's capability: executing
    // the monitor's file, which has it, has emptied the ambient set.
    os::signals::release_end_signals();
    raise_ambient();
    let serve = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Nobody reads it if an earlier process, which the monitor gave up, had the same message.
        pod::daemons_parent::serve(stdin(), || drop(stdout().write_all(b"\n")))
    };
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "{ARGUMENT}: standard input or output is not as the monitor gives it: {error}"
            );
            ExitCode::FAILURE
        }
    }
}
