//! A verb's output: text for people, JSON for programs. All text passes through here, except what
//! `verbs::screen` prints while it waits; the crate `terminal` makes it harmless.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::error::CtlError;
use crate::files::FileError;
use client::refusal::split_remedy;
use terminal::visible;
pub use terminal::{Line, joined, say};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Prints the JSON or the lines for people.
pub fn print<L: IntoIterator<Item: Into<Line>>>(
    format: Format,
    json: &Value,
    lines: impl FnOnce() -> L,
) {
    if format == Format::Json {
        return print_json(json);
    }
    terminal::print(lines());
}

/// Prints the JSON.
pub fn print_json(json: &Value) {
    let _ = writeln!(std::io::stdout(), "{}", visible::json(&json.to_string()));
}

/// Prints the answer of a verb that has succeeded.
///
/// # Errors
/// None: what cannot be written any more does not make it fail.
pub fn answer<L: IntoIterator<Item: Into<Line>>>(
    format: Format,
    json: &Value,
    lines: impl FnOnce() -> L,
) -> Result<ExitCode, CtlError> {
    print(format, json, lines);
    Ok(ExitCode::SUCCESS)
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

/// Prints a document that has no other form, indented for people.
///
/// # Errors
/// If standard output cannot be written.
pub fn answer_json(format: Format, json: &Value) -> Result<ExitCode, CtlError> {
    answer_document(format, json, &visible::json(&format!("{json:#}\n")))
}

/// Prints the JSON or the document as the answer of a verb.
///
/// # Errors
/// If standard output cannot be written.
pub fn answer_document(format: Format, json: &Value, text: &str) -> Result<ExitCode, CtlError> {
    match format {
        Format::Json => print_json(json),
        _ => print_document(text)?,
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
    if format == Format::Json {
        let json = error_json(error, details).to_string();
        let _ = writeln!(std::io::stderr(), "{}", visible::json(&json));
        return;
    }
    let mut lines = error_lines(error, details).into_iter();
    lines.next().map(Line::Failure).into_iter().for_each(say);
    lines.for_each(say);
}

fn error_lines(error: &str, details: &[String]) -> Vec<String> {
    let error = format!("launcherctl: {error}");
    let more = details.iter().flat_map(|detail| detail.lines());
    below_first(error.lines().chain(more))
}

/// Only the first line starts at the margin: somebody else's message cannot look like another
/// error. Lines that are indented, as in a traceback, keep that.
pub fn below_first<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lines = lines.into_iter();
    let first = lines.next().map(str::to_owned);
    let indented = lines.map(|line| match line.starts_with("  ") {
        true => line.to_owned(),
        false => format!("  {}", line.trim_start()),
    });
    first.into_iter().chain(indented).collect()
}

fn error_json(error: &str, details: &[String]) -> Value {
    let (error, hint) = split_remedy(error);
    json!({"error": error, "hint": hint, "details": details})
}

#[cfg(test)]
mod tests {
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
}
