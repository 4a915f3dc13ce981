//! libvirt's log of what it does in this process (the client; the whole driver when it is embedded).

use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Names where libvirt's log goes; read once, when libvirt is initialised. Daemons read it too, before their files.
pub const OUTPUTS: &str = "LIBVIRT_LOG_OUTPUTS";

/// Sends libvirt's log of this process into a pipe instead of to stderr, and returns the end to read lines from;
/// nothing if the user has said where it goes.
///
/// Call it first in `main`: no other thread may run yet, and libvirt must not be initialised.
///
/// # Errors
/// If there is no pipe to be had.
pub fn divert_log() -> io::Result<Option<PipeReader>> {
    if std::env::var_os(OUTPUTS).is_some() {
        return Ok(None);
    }
    let (reader, writer) = io::pipe()?;
    // By process number: libvirt's children open it once more before they become QEMU, without our descriptors.
    let outputs = format!(
        "1:file:/proc/{}/fd/{}",
        std::process::id(),
        writer.as_raw_fd()
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "libvirt has no other way to say where its log goes before it is initialised"
    )]
    // SAFETY: the caller runs no other thread that could read the environment meanwhile.
    unsafe {
        std::env::set_var(OUTPUTS, outputs);
    }
    // libvirt opens it anew, at a time that nobody tells: it stays open to the end.
    let _ = writer.into_raw_fd();
    Ok(Some(reader))
}
