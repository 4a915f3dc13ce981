//! libvirt's log of its work in this process: the client's, or the whole driver's when it is
//! embedded.

use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Names where libvirt's log goes; read once, when libvirt is initialised. Daemons read it too,
/// before their files.
pub const OUTPUTS: &str = "LIBVIRT_LOG_OUTPUTS";

/// Why libvirt's log cannot be diverted.
#[derive(Debug, thiserror::Error)]
pub enum DivertError {
    /// Another thread could read the environment while it is changed.
    #[error("this process has {0} threads; the environment can only be changed while there is one")]
    Threads(usize),
    /// The kernel has no pipe left, or `/proc` is missing.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Sends libvirt's log of this process into a pipe instead of to stderr, and returns the end to
/// read lines from; `None` if the user has set [`OUTPUTS`].
///
/// To be called first in `main`, before libvirt is initialised and while the process has one
/// thread.
///
/// # Errors
/// If there are other threads, or no pipe can be made.
pub fn divert_log() -> Result<Option<PipeReader>, DivertError> {
    if std::env::var_os(OUTPUTS).is_some() {
        return Ok(None);
    }
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(DivertError::Threads(threads));
    }
    let (reader, writer) = io::pipe()?;
    // By process number: libvirt's children open it once more before they become QEMU, without our
    // descriptors.
    let outputs = format!(
        "1:file:/proc/{}/fd/{}",
        std::process::id(),
        writer.as_raw_fd()
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "libvirt has no other way to say where its log goes before it is initialised"
    )]
    // SAFETY: this is the only thread, as checked above, and only this one could start another.
    unsafe {
        std::env::set_var(OUTPUTS, outputs);
    }
    // libvirt opens it anew, some time later: it stays open until the process ends.
    let _ = writer.into_raw_fd();
    Ok(Some(reader))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_not_changed_under_other_threads() {
        // The test harness has two threads at least.
        let error = divert_log().unwrap_err();
        assert!(matches!(error, DivertError::Threads(2..)), "{error}");
        assert!(std::env::var_os(OUTPUTS).is_none());
    }
}
