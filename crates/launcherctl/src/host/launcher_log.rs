//! The reason of a failure in the launcher's log.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::Value;

use super::error::RunError;
use crate::error::{CtlError, text_error};
use crate::files::absolute;
use crate::json::text_at;
use client::CallError;
use client::refusal::plain;

/// How much of the log's end is read.
const MAX_END_BYTES: u64 = 1 << 20;

/// An error with its causes, and with the launcher's last error if the launcher has ended.
pub(super) fn reason(error: &CtlError, log: &Path) -> String {
    let has_ended = matches!(
        error.of(),
        Some(RunError::EndedBeforeReady(_) | RunError::EndedOnItsOwn(_))
    );
    match more_in_log(error, log).filter(|_| has_ended) {
        Some(last) => format!("{}: {last}", error.chain()),
        None => error.chain(),
    }
}

/// Adds the path of the launcher's log and its last error, unless that repeats the error.
pub(super) fn with_log(error: CtlError, log: &Path) -> CtlError {
    if log.metadata().map_or(0, |it| it.len()) == 0 {
        // It is not kept.
        return error;
    }
    let last_error = more_in_log(&error, log);
    let last_error = last_error.map(|error| format!("its last error: {error}"));
    let log = format!("the launcher's log: {}", absolute(log).display());
    let details = [log].into_iter().chain(last_error).collect();
    let failed = text_error!("run failed").caused_by(error.into_source());
    CtlError::from(failed).with_details(details)
}

/// The log's last error, if it adds something to the error.
fn more_in_log(error: &CtlError, log: &Path) -> Option<String> {
    Some(plain(&last_error(&end_of(log)?)?)).filter(|_| says_more(error))
}

/// Whether the log's last error adds something to the error.
fn says_more(error: &CtlError) -> bool {
    match (error.of(), error.of()) {
        // The answer has the causes; libvirt may have logged errors after that.
        (Some(CallError::Refused { .. }), _) => false,
        // It was ended for that.
        (_, Some(RunError::Late(..) | RunError::NotStarted(_))) => false,
        // A killed launcher logs nothing about it: its last error is about something else.
        (_, Some(RunError::EndedBeforeReady(status) | RunError::EndedOnItsOwn(status))) => {
            status.signal().is_none()
        }
        _ => true,
    }
}

/// Why the launcher has failed to start the guest, by its log.
pub(super) fn failed_sync(log: &Path) -> Option<String> {
    let last = last_error(&end_of(log)?)?;
    Some(plain(last.strip_prefix("Failed to sync vmi: ")?))
}

/// The hook sidecars for which the launcher waits, with the reasons.
pub(super) fn missing_sidecars(log: &Path) -> Option<String> {
    let end = end_of(log)?;
    let lines = end.lines().rev();
    let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let waits = |line: &Value| text_at(line, "/msg") == "Still waiting for hook sidecars";
    lines
        .find(waits)
        .map(|line| text_at(&line, "/not_ready").to_owned())
}

fn end_of(log: &Path) -> Option<String> {
    let end = os::small_file::tail(log, MAX_END_BYTES).ok()?;
    Some(String::from_utf8_lossy(&end).into_owned())
}

fn last_error(text: &str) -> Option<String> {
    let is_wanted = |line: &Value| {
        matches!(text_at(line, "/level"), "error" | "fatal")
            && !is_of_request(text_at(line, "/msg"))
    };
    let lines = text.lines().rev();
    let mut lines = lines.filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(is_wanted)?;
    Some(match (text_at(&line, "/msg"), text_at(&line, "/reason")) {
        (message, "") => message.to_owned(),
        (message, reason) => format!("{message}: {reason}"),
    })
}

/// Whether the launcher logs this for a refused request, such as a pause by a user meanwhile. A
/// sync is the start.
fn is_of_request(message: &str) -> bool {
    message.starts_with("Failed to ")
        && message.ends_with(" vmi")
        && message != "Failed to sync vmi"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_killed_launcher_has_no_last_error() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let line = r#"{"level":"error","msg":"Failed to sync vmi","reason":"no"}"#;
        std::fs::write(log.path(), line).unwrap();
        let details = |status| {
            let ended = RunError::EndedOnItsOwn(std::process::ExitStatus::from_raw(status));
            with_log(ended.into(), log.path()).details().to_vec()
        };
        assert_eq!(details(9).len(), 1, "{:?}", details(9));
        assert_eq!(
            details(1 << 8).last().unwrap(),
            "its last error: Failed to sync vmi: no"
        );
    }

    #[test]
    fn the_missing_sidecars_are_those_of_the_last_report() {
        let log = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(missing_sidecars(log.path()), None);
        let line = |not_ready: &str| {
            format!(r#"{{"msg":"Still waiting for hook sidecars","not_ready":"{not_ready}"}}"#)
        };
        let lines = [&line("a, b"), &line("b"), r#"{"msg":"other"}"#, "text"];
        std::fs::write(log.path(), lines.join("\n")).unwrap();
        assert_eq!(missing_sidecars(log.path()).as_deref(), Some("b"));
    }

    #[test]
    fn a_refused_request_is_not_the_last_error_of_a_start() {
        let line = |message: &str| format!(r#"{{"level":"error","msg":"{message}"}}"#) + "\n";
        let pause = line("Failed to pause vmi");
        let sync = line("Failed to sync vmi") + &pause;
        assert_eq!(last_error(&sync).as_deref(), Some("Failed to sync vmi"));
        assert_eq!(last_error(&pause), None);
    }
}
