//! What a parent leaves in the processes that it starts: blocked signals.
//!
//! They survive execve(2). With SIGCHLD blocked nobody learns that a child has ended, and libvirt waits in vain for
//! QEMU's end (`supervisor::orphans`); with SIGTERM blocked the pod can only be killed.

use nix::sys::signal::SigSet;

/// Lets every signal through again. To be called first, while the process has one thread: threads and children
/// inherit it.
pub fn unblock_signals() {
    if let Err(error) = SigSet::all().thread_unblock() {
        eprintln!("signals that the parent has blocked stay blocked: {error}");
    }
}
