//! The reason of a failure in the launcher's log.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::Value;

use super::error::RunError;
use crate::error::CtlError;
use crate::json::text_at;
use client::refusal::plain;

/// How much of the log's end is read.
const MAX_END_BYTES: u64 = 1 << 20;

/// An error with its causes, and with the launcher's last error if the launcher has ended.
pub(super) fn reason(error: &CtlError, log: &Path) -> String {
    match last_words(error, log) {
        Some(last) => format!("{}: {last}", error.chain()),
        None => error.chain(),
    }
}

/// The last error of a launcher that has ended. A killed one logs nothing about it: its last error
/// is about something else.
fn last_words(error: &CtlError, log: &Path) -> Option<String> {
    let Some(RunError::EndedBeforeReady(status) | RunError::EndedOnItsOwn(status)) = error.of()
    else {
        return None;
    };
    let text = end_of(log)?;
    Some(plain(&last_error(&text)?)).filter(|_| status.signal().is_none())
}

/// Why the launcher has failed to start the guest, by its log.
pub(super) fn failed_sync(log: &Path) -> Option<String> {
    let last = last_error(&end_of(log)?)?;
    Some(plain(last.strip_prefix("Failed to sync vmi: ")?))
}

fn end_of(log: &Path) -> Option<String> {
    let end = os::small_file::tail(log, MAX_END_BYTES).ok()?;
    Some(String::from_utf8_lossy(&end).into_owned())
}

fn last_error(text: &str) -> Option<String> {
    let is_wanted = |line: &Value| matches!(text_at(line, "/level"), "error" | "fatal");
    let lines = text.lines().rev();
    let mut lines = lines.filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(is_wanted)?;
    Some(match (text_at(&line, "/msg"), text_at(&line, "/reason")) {
        (message, "") => message.to_owned(),
        (message, reason) => format!("{message}: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_launcher_has_no_last_error() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let line = r#"{"level":"error","msg":"Failed to sync vmi","reason":"no"}"#;
        std::fs::write(log.path(), line).unwrap();
        let of = |status| {
            let ended = RunError::EndedOnItsOwn(std::process::ExitStatus::from_raw(status));
            reason(&ended.into(), log.path())
        };
        assert!(!of(9).contains("Failed to sync"), "{}", of(9));
        assert!(of(1 << 8).ends_with(": Failed to sync vmi: no"));
    }
}
