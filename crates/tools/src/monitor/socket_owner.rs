//! A child of the monitor that owns the command socket and starts libvirt's daemons, so that a
//! launcher's death changes neither.
//!
//! virt-handler knows the pod by the process that has called listen(2) last. It looks for virtqemud
//! among that process's children and for QEMU among its parent's, and reaches the pod's sockets and
//! its network by `/proc/PID`.

use std::ffi::OsString;
use std::io::{self, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitStatus, set_parent_process_death_signal};

use os::descriptors::{message_sockets, send};

/// The only argument of the monitor's executable that is to be the owner of its standard input, and
/// to start daemons for whoever asks by its standard output.
const ARGUMENT: &str = "own-command-socket";

/// The command socket, the monitor's child that owns it, and the socket between launchers and it.
pub struct CommandSocketOwner {
    socket: OwnedFd,
    launchers: OwnedFd,
    owners: OwnedFd,
    /// `None` if it could not be started again.
    process: Option<Pid>,
}

impl CommandSocketOwner {
    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(socket: OwnedFd) -> io::Result<Self> {
        let (launchers, owners) = message_sockets()?;
        let process = Some(start_process(&socket, &owners)?);
        Ok(Self {
            socket,
            launchers,
            owners,
            process,
        })
    }

    /// What a new launcher gets as its standard input: the way to the owner, and in it the socket.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn for_launcher(&self) -> io::Result<OwnedFd> {
        send(&self.owners, b"socket", &[self.socket.as_fd()])?;
        self.launchers.try_clone()
    }

    /// Starts the process again if it is one of those that have `ended`.
    pub fn replace(&mut self, ended: &[(Pid, WaitStatus)]) {
        if ended.iter().any(|(pid, _)| Some(*pid) == self.process) {
            tracing::warn!("The command socket's owner has died; starting it again");
            let process = start_process(&self.socket, &self.owners);
            self.process = process
                .inspect_err(|error| {
                    tracing::error!(reason = %error, "virt-handler does not find QEMU any more, and libvirt's daemons do not start again");
                })
                .ok();
        }
    }
}

fn start_process(socket: &OwnedFd, owners: &OwnedFd) -> io::Result<Pid> {
    let child = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .stdin(socket.try_clone()?)
        .stdout(owners.try_clone()?)
        // Ctrl-C in a terminal reaches only the monitor.
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

/// Whether this process is the owner, and not the monitor.
pub fn is_meant(arguments: &[OsString]) -> bool {
    matches!(arguments, [only] if only == ARGUMENT)
}

/// Owns the socket until the monitor ends.
pub fn main() -> ExitCode {
    // The daemons inherit which signals are blocked.
    os::signals::release_end_signals();
    let serve = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        pod::restart::own_command_socket(stdin())?;
        pod::daemons_parent::serve(stdout())
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
