//! What `run` says while it works: on standard error for a person, as JSON lines on standard output for a program.
//! Nobody may be listening any more; the VM is looked after all the same.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde_json::{Value, json};

use super::Output;
use super::console::Screen;
use super::watch::Report;

/// Tells how far the VM has come, and after how long.
#[derive(Debug)]
pub struct Phases {
    started: Instant,
    output: Output,
    /// Standard error is a terminal, perhaps in raw mode.
    terminal: bool,
    /// The guest, which writes to the same terminal or pipe, has not ended its line.
    within_line: Cell<bool>,
}

impl Phases {
    /// Starts the clock.
    #[must_use]
    pub fn new(output: Output) -> Self {
        Self {
            started: Instant::now(),
            output,
            terminal: std::io::stderr().is_terminal(),
            within_line: Cell::new(false),
        }
    }

    /// Something has been reached.
    pub fn reached(&self, phase: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        match self.output {
            Output::Json => put(&json!({"phase": phase, "seconds": seconds})),
            Output::Text => self.line(&format!("[{seconds:7.2} s] {phase}")),
        }
    }

    /// Something worth knowing.
    pub fn note(&self, text: &str) {
        match self.output {
            Output::Json => put(&json!({"note": text})),
            Output::Text => self.line(&format!("            {text}")),
        }
    }

    /// What the launcher reports: each event for a program, what is meant for people for them.
    pub fn report(&self, report: &Report) {
        if let (Output::Json, Report::Domain { kind, .. }) = (self.output, report) {
            put(
                &json!({"eventType": kind, "status": report.state(), "seconds": self.started.elapsed().as_secs_f64()}),
            );
        }
        if let Report::Event(event) = report {
            self.note(event["message"].as_str().unwrap_or_default());
        }
    }

    /// Where the guest's console goes: a program gets nothing but JSON on standard output.
    #[must_use]
    pub fn console(&self) -> Screen {
        match self.output {
            Output::Json => Screen::Errors(tokio::io::stderr()),
            Output::Text => Screen::Output(tokio::io::stdout()),
        }
    }

    /// The guest has written this on the same terminal.
    pub fn guest_wrote(&self, bytes: &[u8]) {
        self.within_line
            .set(bytes.last().is_some_and(|last| *last != b'\n'));
    }

    fn line(&self, text: &str) {
        let end = if self.terminal { "\r\n" } else { "\n" };
        let before = if self.within_line.take() { end } else { "" };
        let _ = write!(std::io::stderr(), "{before}{text}{end}");
    }
}

fn put(line: &Value) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
