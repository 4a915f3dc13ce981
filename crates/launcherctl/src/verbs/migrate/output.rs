//! Output of `migrate`: a line updated in place on a terminal, elsewhere a line every second; for
//! programs each event as JSON.

use std::cell::Cell;
use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use super::record::{decision, line, seconds, to_json};
use crate::view::output::{Format, say};
use crate::view::visible;
use api::proto::inspect::v1::MigrationEvent;
use api::proto::inspect::v1::migration_event::Event;

/// Without a terminal, interval of printed samples, in microseconds.
const LINE_INTERVAL_MICROS: u64 = 1_000_000;

/// Prints a migration in progress.
#[derive(Debug)]
pub struct Output {
    format: Format,
    terminal: bool,
    /// Whether the updated line is on the terminal.
    in_line: Cell<bool>,
    /// When the next sample gets its own line.
    next_line: Cell<u64>,
}

impl Output {
    /// On standard error for people, on standard output for programs.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            terminal: std::io::stderr().is_terminal(),
            in_line: Cell::new(false),
            next_line: Cell::new(0),
        }
    }

    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => put(&json!({"note": text})),
            Format::Text => self.whole_line(text),
        }
    }

    pub fn event(&self, event: &MigrationEvent) {
        if self.format == Format::Json {
            return put(&to_json(event));
        }
        let time = format!("[{:7.2} s] ", seconds(event));
        match &event.event {
            Some(Event::Began(_)) => self.whole_line(&format!("{time}migration begins")),
            Some(Event::Sample(sample)) if self.terminal => {
                self.changing_line(&format!("{time}{}", line(sample)));
            }
            Some(Event::Sample(sample)) if event.at_micros >= self.next_line.get() => {
                self.next_line
                    .set(event.at_micros.saturating_add(LINE_INTERVAL_MICROS));
                self.whole_line(&format!("{time}{}", line(sample)));
            }
            Some(Event::Decision(what)) => self.whole_line(&format!("{time}{}", decision(what))),
            _ => {}
        }
    }

    /// Keeps the updated line; further output starts another one.
    pub fn end_line(&self) {
        if self.in_line.take() {
            let _ = writeln!(std::io::stderr());
        }
    }

    fn whole_line(&self, text: &str) {
        self.end_line();
        say(text);
    }

    fn changing_line(&self, text: &str) {
        // Some terminals do not report their width.
        let width = match rustix::termios::tcgetwinsize(std::io::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => 80,
        };
        // A wrapped line could not be overwritten.
        let text = visible::line(text);
        let shown: String = text.chars().take(width.saturating_sub(1)).collect();
        let _ = write!(std::io::stderr(), "\r\x1b[K{shown}");
        self.in_line.set(true);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.end_line();
    }
}

/// A reader such as head(1) may have closed the pipe, which must not end the migration.
fn put(line: &Value) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
