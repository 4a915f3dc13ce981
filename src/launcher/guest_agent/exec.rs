//! Runs a command in the guest, for an exec probe too: `guest-exec`, then `guest-exec-status` until
//! it has ended.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::error::AgentError;
use super::poll::COMMAND_TIMEOUT;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use domain::guest_agent::answer::{self, ExecStatus};
use domain::guest_agent::limits;

/// Time added to the command's limit. virt-handler waits 5 s longer than that limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval between the first two checks whether a command has ended; it doubles after each check.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);
/// Exit status of a command killed by a signal, less the signal's number; as in a shell.
const SIGNALLED: i64 = 128;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestCommand {
    /// Name of the domain; empty means this launcher's domain.
    pub domain: String,
    pub path: String,
    pub args: Vec<String>,
    /// Limit of the command's run time.
    pub timeout: Duration,
}

/// Result of a command in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestOutput {
    pub exit_code: i32,
    /// What the command wrote to standard output.
    pub stdout: String,
    /// And to standard error.
    // D-agent-14 (docs/differences.md).
    pub stderr: String,
}

/// Sends commands to the agent.
#[derive(Clone)]
pub struct AgentCommands {
    pub(super) libvirt: Arc<LibvirtDomain>,
}

impl AgentCommands {
    /// Runs a command in the guest and waits until it has ended.
    ///
    /// # Errors
    /// The command cannot be started or does not end in time, or the agent does not answer. A
    /// nonzero exit status is not an error.
    pub async fn exec(&self, command: GuestCommand) -> Result<GuestOutput, LauncherError> {
        self.check_domain(&command.domain)?;
        let timeout = command.timeout.max(Duration::from_secs(1));
        let end = os::time::deadline(timeout);
        let last_answer = os::time::deadline(timeout.saturating_add(ANSWER_TIMEOUT));
        // D-agent-6 (docs/differences.md).
        let start = json!({"execute": "guest-exec", "arguments":
            {"path": command.path, "arg": command.args, "capture-output": true}});
        let started = self.ask(start.to_string(), last_answer).await?;
        let pid = answer::exec_pid(&started)?;
        if pid <= 0 {
            let command = command.path;
            return Err(AgentError::NoProcess { command, pid }.into());
        }
        let ask = json!({"execute": "guest-exec-status", "arguments": {"pid": pid}}).to_string();
        let mut intervals = intervals(timeout);
        loop {
            let status = self.ask(ask.clone(), last_answer).await?;
            let status = answer::exec_status(&status)?;
            if status.exited {
                return output(command.path, status);
            }
            let now = Instant::now();
            if now >= end {
                return Err(AgentError::StillRuns {
                    command: command.path,
                    pid,
                    after: timeout,
                }
                .into());
            }
            let interval = intervals.next().unwrap_or(timeout);
            sleep_until(os::time::deadline(interval).min(end)).await;
        }
    }

    /// Sends one command to the agent, which must answer in 5 s, and before `end`.
    pub(super) async fn ask(&self, command: String, end: Instant) -> Result<String, LauncherError> {
        let limit = end.saturating_duration_since(Instant::now());
        self.libvirt
            .agent_call("the guest agent's command", limit, move |domain| {
                let answer =
                    domain.agent_command(&command, COMMAND_TIMEOUT, limits::MAX_ANSWER_BYTES);
                Ok(answer?)
            })
            .await
    }

    /// Refuses another domain. An empty name means this launcher's domain.
    pub(super) fn check_domain(&self, name: &str) -> Result<(), AgentError> {
        if name.is_empty() || name == self.libvirt.name {
            return Ok(());
        }
        Err(AgentError::ForeignDomain {
            ours: self.libvirt.name.clone(),
            theirs: name.to_owned(),
        })
    }
}

/// Intervals between checks whether a command has ended: short at first, as most commands end at
/// once, and at most a tenth of its limit.
// D-agent-12 (docs/differences.md).
fn intervals(timeout: Duration) -> impl Iterator<Item = Duration> {
    let longest = timeout.checked_div(10).unwrap_or(timeout);
    let doubled = move |last: &Duration| Some(last.saturating_mul(2).min(longest));
    std::iter::successors(Some(FIRST_INTERVAL.min(longest)), doubled)
}

// D-agent-7 (docs/differences.md).
fn output(command: String, status: ExecStatus) -> Result<GuestOutput, LauncherError> {
    let text = |data: Option<String>| match BASE64_STANDARD.decode(data.unwrap_or_default()) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(AgentError::Output {
            command: command.clone(),
            source,
        }),
    };
    let (stdout, stderr) = (text(status.out_data)?, text(status.err_data)?);
    let killed = status.signal.map(|signal| signal.saturating_add(SIGNALLED));
    let code = status.exit_code.or(killed).unwrap_or_default();
    Ok(GuestOutput {
        // On Windows the agent sends an unsigned 32-bit code; virt-handler gets it as signed.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the lower 32 bits are the code"
        )]
        exit_code: code as i32,
        stdout,
        stderr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(answer: &str) -> Result<GuestOutput, LauncherError> {
        let answer = format!(r#"{{"return":{answer}}}"#);
        output("cmd".into(), answer::exec_status(&answer).unwrap())
    }

    #[test]
    fn output_and_exit_status_are_the_guests() {
        let done = ended(r#"{"exited":true,"exitcode":3,"out-data":"aGkK","err-data":"bm8K"}"#);
        let done = done.unwrap();
        assert_eq!(
            (done.exit_code, &*done.stdout, &*done.stderr),
            (3, "hi\n", "no\n")
        );
        assert_eq!(
            ended(r#"{"exited":true,"exitcode":0}"#).unwrap(),
            GuestOutput::default()
        );
    }

    #[test]
    fn a_command_that_ends_at_once_is_noticed_soon() {
        let milliseconds = intervals(Duration::from_secs(30)).map(|it| it.as_millis());
        let milliseconds: Vec<u128> = milliseconds.take(11).collect();
        let expected = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3000, 3000];
        assert_eq!(milliseconds, expected);
        let shortest = intervals(Duration::from_secs(1)).nth(9);
        assert_eq!(shortest, Some(Duration::from_millis(100)));
    }

    #[test]
    // D-agent-7 (docs/differences.md).
    fn a_command_that_was_killed_has_failed() {
        assert_eq!(
            ended(r#"{"exited":true,"signal":9}"#).unwrap().exit_code,
            137
        );
    }

    #[test]
    fn a_windows_exception_is_kept() {
        let done = ended(r#"{"exited":true,"exitcode":3221225786}"#).unwrap();
        assert_eq!(done.exit_code, -1_073_741_510);
    }

    #[test]
    fn output_that_is_not_text_is_made_text() {
        let done = ended(r#"{"exited":true,"exitcode":0,"out-data":"/w=="}"#).unwrap();
        assert_eq!(done.stdout, "\u{fffd}");
        assert!(ended(r#"{"exited":true,"exitcode":0,"out-data":"%"}"#).is_err());
    }
}
