//! What is known of a migration: its events, as they are printed, and how it has ended.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::json::set;
use crate::view::output::{Format, print_json, say};
use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{MigrationDecision, MigrationEnded, MigrationEvent, MigrationSample};
use client::refusal::{self, REMEDY_MARK};
use terminal::human_size;

/// How a migration ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// After how many seconds; `None` while it goes on.
    pub ended: Option<(f64, MigrationEnded)>,
}

impl Record {
    /// Notes an end. The beginning of a migration removes what was known of another one.
    pub fn add(&mut self, event: &MigrationEvent) {
        match &event.event {
            Some(Event::Began(_)) => self.ended = None,
            Some(Event::Ended(ended)) => self.ended = Some((seconds(event), ended.clone())),
            _ => {}
        }
    }

    /// Whether the guest has moved; `None` while it goes on.
    pub fn has_succeeded(&self) -> Option<bool> {
        self.ended
            .as_ref()
            .map(|(_, ended)| ended.failure.is_empty())
    }

    /// One line: how it has ended.
    pub fn summary(&self) -> String {
        let Some((seconds, ended)) = &self.ended else {
            return "the migration is in progress".to_owned();
        };
        if refusal::is_cancelled(&ended.failure) {
            return format!("the migration was cancelled after {seconds:.1} s");
        }
        if !ended.failure.is_empty() {
            let reason = refusal::plain(&ended.failure);
            let reason = reason.replace(REMEDY_MARK, "; ");
            return format!("the migration failed after {seconds:.1} s: {reason}");
        }
        let sent = ended.data_processed.map(human_size);
        let known = [
            Some(format!("migrated in {seconds:.1} s")),
            sent.map(|sent| format!("{sent} transferred")),
            ended.downtime_ms.map(|ms| format!("downtime {ms} ms")),
        ];
        known.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Interval of samples for people, in microseconds.
const LINE_INTERVAL_MICROS: u64 = 1_000_000;

/// Prints a migration in progress: on standard error for people, on standard output for programs.
#[derive(Debug)]
pub struct Output {
    format: Format,
    /// When the next sample gets its line, in microseconds.
    next_line: Cell<u64>,
}

impl Output {
    pub fn new(format: Format) -> Self {
        let next_line = Cell::new(0);
        Self { format, next_line }
    }

    pub fn note(&self, text: &str) {
        match self.format {
            Format::Json => print_json(&json!({"note": text})),
            _ => say(text),
        }
    }

    pub fn event(&self, event: &MigrationEvent) {
        let text = match &event.event {
            _ if self.format == Format::Json => return print_json(&to_json(event)),
            Some(Event::Began(_)) => "migration begins".to_owned(),
            Some(Event::Sample(sample)) if event.at_micros >= self.next_line.get() => {
                let next = event.at_micros.saturating_add(LINE_INTERVAL_MICROS);
                self.next_line.set(next);
                line(sample)
            }
            Some(Event::Decision(what)) => decision(what),
            _ => return,
        };
        say(format!("[{:7.2} s] {text}", seconds(event)));
    }
}

/// An event for programs; `event` is its name.
fn to_json(event: &MigrationEvent) -> Value {
    let mut json = json!(event.event);
    set(&mut json, "/seconds", json!(seconds(event)));
    json
}

/// Seconds from the migration's beginning.
#[allow(clippy::cast_precision_loss, reason = "for display")]
fn seconds(event: &MigrationEvent) -> f64 {
    event.at_micros as f64 / 1e6
}

/// A sample as a line for people.
fn line(sample: &MigrationSample) -> String {
    let amount = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), human_size);
    let total = amount(sample.data_total);
    let rate = sample.memory_bandwidth.map(human_size);
    let pass = sample.iteration.filter(|pass| *pass > 0);
    let throttle = sample.throttle_percent.filter(|percent| *percent > 0);
    let mode = match sample.mode.as_str() {
        "PostCopy" => Some("post-copy"),
        _ => sample.is_paused.then_some("guest paused"),
    };
    let known = [
        Some(format!("{} sent", amount(sample.data_processed))),
        Some(format!("{} of {total} left", amount(sample.data_remaining))),
        rate.map(|rate| format!("{rate}/s")),
        pass.map(|pass| format!("pass {pass}")),
        throttle.map(|percent| format!("guest slowed down by {percent} %")),
        mode.map(str::to_owned),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A decision for people.
fn decision(decision: &MigrationDecision) -> String {
    let action = match decision.action.as_str() {
        "StartPostCopy" => "post-copy begins",
        "SetMaxDowntime" => "maximum downtime is set",
        "Suspend" => "guest is paused",
        "Abort" => "migration is being cancelled",
        other => other,
    };
    let result = if decision.succeeded { "" } else { " (failed)" };
    format!("{action}{result}: {}", decision.why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api::proto::inspect::v1::MigrationBegan;

    fn event(seconds: u64, event: Event) -> MigrationEvent {
        MigrationEvent {
            at_micros: seconds * 1_000_000,
            event: Some(event),
        }
    }

    fn began() -> MigrationEvent {
        event(0, Event::Began(MigrationBegan::default()))
    }

    fn sample() -> MigrationSample {
        MigrationSample {
            data_total: Some(256 << 20),
            data_remaining: Some(200 << 20),
            memory_bandwidth: Some(31 << 20),
            iteration: Some(1),
            ..MigrationSample::default()
        }
    }

    #[test]
    fn events_make_a_record_and_a_new_beginning_empties_it() {
        let mut record = Record::default();
        record.add(&began());
        let ended = MigrationEnded {
            failure: "Live migration has been aborted".into(),
            ..MigrationEnded::default()
        };
        record.add(&event(60, Event::Ended(ended)));
        assert_eq!(record.has_succeeded(), Some(false));
        let text = "the migration was cancelled after 60.0 s";
        assert_eq!(record.summary(), text);
        record.add(&began());
        assert_eq!(record.summary(), "the migration is in progress");
        let ended = MigrationEnded {
            downtime_ms: Some(84),
            data_processed: Some(3 << 20),
            ..MigrationEnded::default()
        };
        record.add(&event(2, Event::Ended(ended)));
        assert_eq!(record.has_succeeded(), Some(true));
        let text = "migrated in 2.0 s, 3 MiB transferred, downtime 84 ms";
        assert_eq!(record.summary(), text);
    }

    #[test]
    fn a_line_says_what_is_left_and_what_hinders() {
        let first = "? sent, 200 MiB of 256 MiB left, 31 MiB/s, pass 1";
        assert_eq!(line(&sample()), first);
        let paused = MigrationSample {
            throttle_percent: Some(50),
            is_paused: true,
            ..sample()
        };
        let last = line(&paused);
        assert!(
            last.ends_with(", guest slowed down by 50 %, guest paused"),
            "{last}"
        );
        // What QEMU does not know yet is left out.
        let early = MigrationSample {
            data_processed: Some(10 << 20),
            memory_bandwidth: None,
            ..sample()
        };
        let early = line(&early);
        assert_eq!(early, "10 MiB sent, 200 MiB of 256 MiB left, pass 1");
        let suspended = MigrationDecision {
            action: "Suspend".into(),
            why: "not completed after 49 s".into(),
            succeeded: true,
        };
        assert_eq!(
            decision(&suspended),
            "guest is paused: not completed after 49 s"
        );
    }

    #[test]
    fn each_event_has_its_name_and_time_for_programs() {
        assert_eq!(to_json(&began())["event"], "began");
        let sample = to_json(&event(3, Event::Sample(MigrationSample::default())));
        assert_eq!(
            (&sample["seconds"], &sample["dirtyRate"]),
            (&json!(3.0), &Value::Null)
        );
        assert_eq!(sample["isPaused"], false);
    }
}
