//! A child of the monitor that owns the command socket once a launcher has died or asks for it.
//!
//! virt-handler knows the pod by the process that has called listen(2) last. It looks for QEMU
//! among the children of that process's parent, and reaches the pod's sockets by `/proc/PID/root`.
//! The first launcher owns the socket itself: until the guest starts, virt-handler also looks for
//! virtqemud among the owner's children if the VMI needs locked memory.

use std::ffi::OsString;
use std::io::{self, Read, Write, stdin, stdout};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitStatus, set_parent_process_death_signal};

use os::poll::poll_for;

/// The only argument of the monitor's executable that is to be the owner of its standard input.
const ARGUMENT: &str = "own-command-socket";
/// Limit for the process to own the socket. Without one, the launcher would wait for it.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// The socket, and the monitor's child that owns it.
pub struct CommandSocketOwner {
    socket: OwnedFd,
    /// `None` as long as the first launcher owns it, or if it could not be started.
    process: Option<Pid>,
}

impl CommandSocketOwner {
    pub fn new(socket: OwnedFd) -> Self {
        let process = None;
        Self { socket, process }
    }

    /// The socket, for a launcher.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Starts the process, unless that was done before.
    pub fn take_over(&mut self) {
        if self.process.is_none() {
            self.start_process();
        }
    }

    /// Starts the process again if it is one of those that have `ended`.
    pub fn replace(&mut self, ended: &[(Pid, WaitStatus)]) {
        if ended.iter().any(|(pid, _)| Some(*pid) == self.process) {
            tracing::warn!("The command socket's owner has died; starting it again");
            self.start_process();
        }
    }

    fn start_process(&mut self) {
        self.process = match start_process(&self.socket) {
            Ok(pid) => Some(pid),
            Err(error) => {
                tracing::warn!(reason = %error, "The monitor owns the command socket, and virt-handler does not find QEMU");
                // Better than a process that is gone.
                drop(pod::restart::own_command_socket(&self.socket));
                None
            }
        };
    }
}

/// Returns once the process owns the socket.
fn start_process(socket: &OwnedFd) -> io::Result<Pid> {
    let (mut says, answer) = io::pipe()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .stdin(socket.try_clone()?)
        .stdout(answer)
        .spawn()?;
    let mut answers = [PollFd::new(&says, PollFlags::IN)];
    if poll_for(&mut answers, Some(START_TIMEOUT))? && says.read(&mut [0])? == 1 {
        return Ok(Pid::from_child(&child));
    }
    child.kill()?;
    Err(io::Error::other(
        "the process that is to own it does not answer",
    ))
}

/// Whether this process is the owner, and not the monitor.
pub fn is_meant(arguments: &[OsString]) -> bool {
    matches!(arguments, [only] if only == ARGUMENT)
}

/// Owns the socket until the monitor ends.
pub fn main() -> ExitCode {
    let owns = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        pod::restart::own_command_socket(stdin())?;
        // Fails if the monitor ended before.
        stdout().write_all(b"\n")
    };
    if let Err(error) = owns() {
        eprintln!("{ARGUMENT}: standard input is not the command socket: {error}");
        return ExitCode::FAILURE;
    }
    loop {
        std::thread::park();
    }
}
