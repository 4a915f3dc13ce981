use std::process::ExitStatus;
use std::time::Duration;

/// Why a VM cannot be started, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// KVM cannot run this guest, but emulation may.
    #[error("KVM has stopped the guest with an internal error right after its start")]
    KvmFailed,
    /// The launcher ended before it could be called.
    #[error("the launcher ended before it was ready ({0})")]
    EndedBeforeReady(ExitStatus),
    /// The launcher ended under its guest.
    #[error("the launcher ended on its own ({0})")]
    EndedOnItsOwn(ExitStatus),
    /// The text of `--until` did not appear.
    #[error("{0:?} has not appeared on the console after {seconds} s", seconds = .1.as_secs())]
    NotUp(String, Duration),
}
