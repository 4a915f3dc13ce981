//! The command socket: the launcher's own, or one that the monitor keeps open for the next launcher
//! (`pod::restart`).

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use os::file_error::FileError;

/// Listens under a temporary name until [`Self::publish`] renames it to the one that virt-handler
/// expects.
pub struct CommandSocket {
    /// The temporary name.
    starting: PathBuf,
    /// The name that marks a ready launcher.
    ready: PathBuf,
    is_monitors: bool,
}

impl CommandSocket {
    /// Returns the socket and its listener.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(starting: PathBuf, ready: PathBuf) -> Result<(Self, UnixListener), FileError> {
        let inherited = pod::restart::inherited(&starting);
        let socket = Self {
            starting,
            ready,
            is_monitors: inherited.is_some(),
        };
        let listener = match inherited {
            Some(listener) => UnixListener::from_std(listener),
            None => bind(&socket.starting, &socket.ready),
        };
        match listener {
            Ok(listener) => Ok((socket, listener)),
            Err(source) => Err(socket.error(source)),
        }
    }

    /// Gives the socket its final name `launcher-sock`. This name tells virt-handler and
    /// virt-controller that the pod is ready.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn publish(&self) -> Result<(), FileError> {
        match std::fs::rename(&self.starting, &self.ready) {
            // An earlier launcher has renamed it.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && self.is_monitors
                    && self.ready.exists() => {}
            Err(error) => return Err(self.error(error)),
            Ok(()) => {}
        }
        if self.is_monitors
            && let Err(error) = pod::restart::report_ready()
        {
            tracing::warn!(reason = %error, "The monitor does not know that this launcher serves");
        }
        Ok(())
    }

    /// Removes the socket. virt-handler then knows that this launcher has ended.
    pub fn remove(&self) {
        drop(std::fs::remove_file(&self.ready));
    }

    fn error(&self, source: io::Error) -> FileError {
        FileError::on("serve", &self.ready)(source)
    }
}

/// Binds the socket, after removing a previous launcher's.
fn bind(starting: &Path, ready: &Path) -> io::Result<UnixListener> {
    let listener = pod::restart::bind_command_socket(starting, ready)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}
