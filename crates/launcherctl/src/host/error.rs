use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a VM cannot be started, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The launcher ended before it could be called.
    #[error("the launcher ended before it was ready ({0})")]
    EndedBeforeReady(ExitStatus),
    /// The launcher ended under its guest.
    #[error("the launcher {}", how_it_ended(.0))]
    EndedOnItsOwn(ExitStatus),
    /// A sync has failed after its call had timed out; with the reason from the launcher's log.
    #[error("the VM is not started: {0}")]
    NotStarted(String),
    /// What has not happened before `--timeout` was over.
    #[error("{0} within {seconds} s; --timeout gives it more", seconds = .1.as_secs())]
    Late(String, Duration),
    /// The text of `--until` did not appear, and why, if that is known.
    #[error("{0:?} has not appeared on the console after {seconds} s{why}",
        seconds = .1.as_secs(), why = .2.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    NotUp(String, Duration, Option<String>),
}

fn how_it_ended(status: &ExitStatus) -> String {
    match status.signal() {
        Some(9) => "was killed (by the kernel, if memory ran out: dmesg)".to_owned(),
        _ => format!("ended on its own ({status})"),
    }
}
