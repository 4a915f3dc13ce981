//! Output of `migrate`: a line updated in place on a terminal, elsewhere a line every second; for
//! programs each event as JSON.

use std::cell::{Cell, OnceCell};

use indicatif::ProgressBar;
use serde_json::json;

use super::record::{decision, line, seconds, to_json};
use crate::view::output::{Format, print_json, say};
use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{MigrationEvent, MigrationSample};
use terminal::progress;

/// Interval of samples for people, in microseconds.
const LINE_INTERVAL_MICROS: u64 = 1_000_000;

/// Prints a migration in progress: on standard error for people, on standard output for programs.
#[derive(Debug)]
pub struct Output {
    format: Format,
    /// When the next sample gets its line.
    next_line: Cell<u64>,
    /// How much was sent, and when a sample had that first, in microseconds.
    sent: Cell<(u64, u64)>,
    /// The last sample, on a terminal.
    shown: OnceCell<ProgressBar>,
}

impl Output {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            next_line: Cell::new(0),
            sent: Cell::new((0, 0)),
            shown: OnceCell::new(),
        }
    }

    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => print_json(&json!({"note": text})),
            _ => say(text),
        }
    }

    /// For how many seconds nothing has been sent.
    fn standstill(&self, sample: &MigrationSample, at_micros: u64) -> u64 {
        let sent = sample.data_processed.unwrap_or_default();
        let (before, since) = self.sent.get();
        if sent != before {
            self.sent.set((sent, at_micros));
            return 0;
        }
        at_micros.saturating_sub(since) / 1_000_000
    }

    pub fn event(&self, event: &MigrationEvent) {
        if self.format == Format::Json {
            return print_json(&to_json(event));
        }
        let show = || progress::show("[{elapsed}] {eta} to go, {wide_msg}", 0);
        let text = match &event.event {
            Some(Event::Began(_)) => "migration begins".to_owned(),
            Some(Event::Sample(sample)) if !self.shown.get_or_init(show).is_hidden() => {
                let shown = self.shown.get_or_init(show);
                let total = sample.data_total.unwrap_or_default();
                let left = sample.data_remaining.unwrap_or_default();
                shown.set_length(total);
                shown.set_position(total.saturating_sub(left));
                return shown.set_message(line(sample, self.standstill(sample, event.at_micros)));
            }
            Some(Event::Sample(sample)) if event.at_micros >= self.next_line.get() => {
                let next = event.at_micros.saturating_add(LINE_INTERVAL_MICROS);
                self.next_line.set(next);
                line(sample, self.standstill(sample, event.at_micros))
            }
            Some(Event::Decision(what)) => decision(what),
            Some(Event::Ended(_)) => {
                return self
                    .shown
                    .get()
                    .into_iter()
                    .for_each(ProgressBar::finish_and_clear);
            }
            _ => return,
        };
        say(format!("[{:7.2} s] {text}", seconds(event)));
    }
}
