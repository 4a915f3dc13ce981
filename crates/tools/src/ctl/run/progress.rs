//! What `run` prints while it works: text on standard error, or JSON lines on standard output. That these cannot be
//! written any more must not end the VM.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde_json::{Value, json};

use super::console::ConsoleOutput;
use crate::ctl::events::LauncherEvent;
use crate::ctl::json::text_at;
use crate::ctl::output::Format;

/// Prints which phase the VM has reached, and after how long.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    format: Format,
    /// Standard error is a terminal, perhaps in raw mode.
    terminal: bool,
    /// The guest, which writes to the same terminal or pipe, has not ended its line.
    in_guest_line: Cell<bool>,
}

impl Progress {
    /// Starts the clock.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            started: Instant::now(),
            format,
            terminal: std::io::stderr().is_terminal(),
            in_guest_line: Cell::new(false),
        }
    }

    /// A phase has been reached.
    pub fn phase(&self, phase: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        match self.format {
            Format::Json => put(&json!({"phase": phase, "seconds": seconds})),
            Format::Text => self.line(&format!("[{seconds:7.2} s] {phase}")),
        }
    }

    /// A remark.
    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => put(&json!({"note": text})),
            Format::Text => self.line(&format!("            {text}")),
        }
    }

    /// An event: domain events are for programs only.
    pub fn event(&self, event: &LauncherEvent) {
        match (self.format, event) {
            (Format::Json, LauncherEvent::Domain { kind, .. }) => put(
                &json!({"eventType": kind, "status": event.state(), "seconds": self.started.elapsed().as_secs_f64()}),
            ),
            (Format::Text, LauncherEvent::Domain { .. }) => {}
            (_, LauncherEvent::Kubernetes(event)) => self.note(text_at(event, "/message")),
        }
    }

    /// Where the guest's console goes: with JSON, standard output has nothing else.
    #[must_use]
    pub fn console(&self) -> ConsoleOutput {
        match self.format {
            Format::Json => ConsoleOutput::Stderr(tokio::io::stderr()),
            Format::Text => ConsoleOutput::Stdout(tokio::io::stdout()),
        }
    }

    /// The guest has written this to the same terminal.
    pub fn guest_wrote(&self, bytes: &[u8]) {
        self.in_guest_line
            .set(bytes.last().is_some_and(|last| *last != b'\n'));
    }

    fn line(&self, text: &str) {
        let end = if self.terminal { "\r\n" } else { "\n" };
        let before = if self.in_guest_line.take() { end } else { "" };
        let _ = write!(std::io::stderr(), "{before}{text}{end}");
    }
}

fn put(line: &Value) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
