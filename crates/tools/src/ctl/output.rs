//! What a verb prints: text for people, JSON for programs.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::files::FileError;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

/// Prints the JSON or the text, whichever is wanted, and ends the line.
pub fn print(format: Format, json: &Value, text: impl FnOnce() -> String) {
    let shown = match format {
        Format::Json => json.to_string(),
        Format::Text => text(),
    };
    // A reader such as head(1) may have closed the pipe.
    let _ = writeln!(std::io::stdout(), "{shown}");
}

/// Prints a document as it is. A pipe that its reader has closed (`| head`) is not an error.
///
/// # Errors
/// If standard output cannot be written.
pub fn print_document(text: &str) -> Result<(), FileError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(FileError::on("write", "standard output")),
    }
}
