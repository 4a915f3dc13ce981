//! The command socket's owner while launchers may die: a child of the monitor that outlives them.
//!
//! virt-handler knows the pod by the process that has called listen(2) last. It looks for QEMU among
//! the children of that process's parent, and reaches the pod's sockets by `/proc/PID/root` as long
//! as a migration lasts.

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
    /// `None` if it could not be started: the monitor, which bound the socket, owns it then.
    process: Option<Pid>,
}

impl CommandSocketOwner {
    pub fn start(socket: OwnedFd) -> Self {
        let mut owner = Self {
            socket,
            process: None,
        };
        owner.start_process();
        owner
    }

    /// The socket, for a launcher.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
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
                tracing::warn!(reason = %error, "The command socket has no owner that outlives launchers, so virt-handler may not find the VM");
                None
            }
        };
    }
}

/// Returns once the process owns the socket.
fn start_process(socket: &OwnedFd) -> io::Result<Pid> {
    let (mut says, answer) = io::pipe()?;
    let child = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .stdin(socket.try_clone()?)
        .stdout(answer)
        .spawn()?;
    if !poll_for(
        &mut [PollFd::new(&says, PollFlags::IN)],
        Some(START_TIMEOUT),
    )? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    says.read_exact(&mut [0])?;
    Ok(Pid::from_child(&child))
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
    if owns().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        std::thread::park();
    }
}
