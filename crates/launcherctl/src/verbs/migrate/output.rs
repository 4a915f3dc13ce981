//! Output of `migrate`: a line updated in place on a terminal, elsewhere a line every second; for
//! programs each event as JSON.

use std::cell::Cell;

use serde_json::json;

use super::record::{decision, line, seconds, to_json};
use crate::view::output::{Format, print, say};
use api::proto::inspect::v1::MigrationEvent;
use api::proto::inspect::v1::migration_event::Event;

/// Interval of samples for people, in microseconds.
const LINE_INTERVAL_MICROS: u64 = 1_000_000;

/// Prints a migration in progress: on standard error for people, on standard output for programs.
#[derive(Debug)]
pub struct Output {
    format: Format,
    /// When the next sample gets its line.
    next_line: Cell<u64>,
}

impl Output {
    pub fn new(format: Format) -> Self {
        let next_line = Cell::new(0);
        Self { format, next_line }
    }

    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => print(self.format, &json!({"note": text}), || None),
            Format::Text => say(text),
        }
    }

    pub fn event(&self, event: &MigrationEvent) {
        if self.format == Format::Json {
            return print(self.format, &to_json(event), || None);
        }
        let text = match &event.event {
            Some(Event::Began(_)) => "migration begins".to_owned(),
            Some(Event::Sample(sample)) if event.at_micros >= self.next_line.get() => {
                let next = event.at_micros.saturating_add(LINE_INTERVAL_MICROS);
                self.next_line.set(next);
                line(sample)
            }
            Some(Event::Decision(what)) => decision(what),
            _ => return,
        };
        say(&format!("[{:7.2} s] {text}", seconds(event)));
    }
}
