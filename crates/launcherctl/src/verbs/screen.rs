//! Output of `run` and `stop` while they wait: text on standard error, or JSON lines on standard
//! output.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde_json::json;

use crate::host::console::ConsoleOutput;
use crate::host::control::{RunPhase, Update};
use crate::view::output::{Format, print_json};
use terminal::on_stderr;

/// Prints updates between the guest's output, with the seconds since it was made.
#[derive(Debug)]
pub struct Screen {
    format: Format,
    started: Instant,
    /// Standard error is a terminal, perhaps in raw mode.
    terminal: bool,
    /// The guest, which writes to the same terminal or pipe, has an incomplete line.
    in_guest_line: Cell<bool>,
}

impl Screen {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            started: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            in_guest_line: Cell::new(false),
        }
    }

    /// Prints the supervisor's updates, except the last, which is the program's own result.
    pub fn show(&self, update: &Update) {
        let seconds = self.started.elapsed().as_secs_f64();
        match (self.format, update) {
            (Format::Json, Update::Phase { phase }) => {
                print_json(&json!({"phase": phase.text(), "seconds": seconds}));
            }
            // `migrate` prints its result.
            (_, Update::Phase { phase }) if *phase == RunPhase::GuestArrived => {}
            (_, Update::Phase { phase }) => {
                self.line(&format!("[{seconds:7.2} s] {}", phase.text()));
            }
            (_, Update::Note(text)) => self.note(text),
            _ => {}
        }
    }

    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => print_json(&json!({"note": text})),
            _ => {
                // A remedy, or a traceback below its first line.
                let lines = text.lines().map(|it| it.strip_prefix("  ").unwrap_or(it));
                lines.for_each(|line| self.line(&format!("            {line}")));
            }
        }
    }

    /// Where the guest's console goes: with JSON, standard output has nothing else.
    pub fn console(&self) -> ConsoleOutput {
        match self.format {
            Format::Json => Box::new(tokio::io::stderr()),
            _ => Box::new(tokio::io::stdout()),
        }
    }

    /// Notes the guest's output to the same terminal.
    pub fn guest_wrote(&self, bytes: &[u8]) {
        self.in_guest_line
            .set(bytes.last().is_some_and(|last| *last != b'\n'));
    }

    fn line(&self, text: &str) {
        let end = if self.terminal { "\r\n" } else { "\n" };
        let before = if self.in_guest_line.take() { end } else { "" };
        // A write error must not end the VM.
        let text = on_stderr(text).replace('\n', end);
        let _ = write!(std::io::stderr(), "{before}{text}{end}");
    }
}
