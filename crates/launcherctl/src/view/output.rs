//! A verb's output: text for people, JSON for programs. All text passes through here, except what
//! `verbs::screen` and `migrate`'s output print while they wait; [`visible`] makes it harmless.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::visible;
use crate::error::CtlError;
use crate::files::FileError;
use client::refusal::split_remedy;

/// Work longer than this prints what it waits for.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Prints the JSON or the lines for people, which have no newlines of their own: one inside a line
/// is somebody else's text.
pub fn print<L: IntoIterator<Item = String>>(
    format: Format,
    json: &Value,
    lines: impl FnOnce() -> L,
) {
    let shown = match format {
        Format::Json => json.to_string(),
        Format::Text => joined(lines()),
    };
    // A reader such as head(1) may have closed the pipe.
    let _ = writeln!(std::io::stdout(), "{shown}");
}

/// Prints the answer of a verb that has succeeded.
///
/// # Errors
/// None: what cannot be written any more does not make it fail.
pub fn answer<L: IntoIterator<Item = String>>(
    format: Format,
    json: &Value,
    lines: impl FnOnce() -> L,
) -> Result<ExitCode, CtlError> {
    print(format, json, lines);
    Ok(ExitCode::SUCCESS)
}

/// The lines as one text, safe for a terminal.
pub fn joined(lines: impl IntoIterator<Item = String>) -> String {
    let lines = lines.into_iter().map(|line| visible::line(&line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints a line for people on standard error.
pub fn say(text: &str) {
    // The reader may be gone.
    let _ = writeln!(std::io::stderr(), "{}", visible::line(text));
}

/// The count with the noun in singular or plural: `1 vCPU`, `2 vCPUs`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// A cell of a table.
pub fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Prints a document as the answer of a verb; as JSON, an object with it as its only member.
///
/// # Errors
/// If standard output cannot be written.
pub fn answer_document(format: Format, member: &str, text: &str) -> Result<ExitCode, CtlError> {
    match format {
        Format::Text => print_document(text)?,
        Format::Json => print(format, &json!({member: text}), || None),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a document: unchanged, unless it goes to a terminal.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_document(text: &str) -> Result<(), FileError> {
    if std::io::stdout().is_terminal() {
        return print_bytes(visible::document(text).as_bytes());
    }
    print_bytes(text.as_bytes())
}

/// Prints it unchanged. A pipe that its reader has closed (`| head`) is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Result<(), FileError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(FileError::on("write", "standard output")),
    }
}

/// Prints a verb's failure on standard error: lines for people, or the object of `launcherctl
/// --help`.
pub fn print_error(format: Format, error: &str, details: &[String]) {
    match format {
        Format::Json => {
            let _ = writeln!(std::io::stderr(), "{}", error_json(error, details));
        }
        Format::Text => error_lines(error, details)
            .iter()
            .for_each(|line| say(line)),
    }
}

/// Only the first line starts at the margin: somebody else's message cannot look like another
/// error.
fn error_lines(error: &str, details: &[String]) -> Vec<String> {
    let more = details.iter().flat_map(|detail| detail.lines());
    let mut lines = error.lines().chain(more);
    let first = format!("launcherctl: {}", lines.next().unwrap_or_default());
    let indented = lines.map(|line| format!("  {}", line.trim_start()));
    [first].into_iter().chain(indented).collect()
}

fn error_json(error: &str, details: &[String]) -> Value {
    let (error, hint) = split_remedy(error);
    json!({"error": error, "hint": hint, "details": details})
}

/// Whether a command line asks for JSON, even if it is otherwise invalid.
pub fn wants_json(arguments: &[OsString]) -> bool {
    let words = arguments.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    let is_short = |word: &str| matches!(word, "-ojson" | "-o=json" | "--output=json");
    words.iter().any(|word| is_short(word))
        || words
            .windows(2)
            .any(|pair| matches!(pair, [name, value] if (name == "-o" || name == "--output") && value == "json"))
}

/// Waits, and after a second prints for what, if standard error is a terminal.
pub async fn with_progress<T>(waits_for: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(PROGRESS_DELAY, &mut work).await {
        return done;
    }
    if std::io::stderr().is_terminal() {
        say(&format!("waiting for {waits_for}…"));
    }
    work.await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_as_json_has_its_remedy_apart() {
        let refused = client::refusal::with_remedy(
            "qemu: cannot set up guest memory 'pc.ram'",
            "the machine has too little free memory",
        );
        let json = error_json(&refused, &["the launcher's log: /l".to_owned()]);
        assert_eq!(json["error"], "qemu: cannot set up guest memory 'pc.ram'");
        assert!(json["hint"].as_str().unwrap().contains("too little free"));
        assert_eq!(json["details"], json!(["the launcher's log: /l"]));
        assert_eq!(error_json("no", &[])["hint"], Value::Null);
    }

    #[test]
    fn a_message_of_others_does_not_look_like_another_line() {
        let lines = ["a\nlauncherctl: b\u{1b}[2J".to_owned(), "c".to_owned()];
        assert_eq!(joined(lines), "a\\nlauncherctl: b\\u{1b}[2J\nc");
        let error = "refused: no\nweb: has ended\n  what to do: this";
        let details = ["the launcher's log: /l".to_owned()];
        let expected = [
            "launcherctl: refused: no",
            "  web: has ended",
            "  what to do: this",
            "  the launcher's log: /l",
        ];
        assert_eq!(error_lines(error, &details), expected);
    }

    #[test]
    fn json_is_asked_for_in_each_form_of_the_option() {
        let asks = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            wants_json(&words)
        };
        for line in [
            "-o json puase",
            "ping -ojson",
            "--output json",
            "x --output=json",
        ] {
            assert!(asks(line), "{line}");
        }
        for line in ["ping", "-o text ping", "guest exec -- jq -o json"] {
            assert!(!asks(line), "{line}");
        }
    }
}
