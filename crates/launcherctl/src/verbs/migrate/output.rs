//! What is printed of a migration in progress: on standard error for people, on standard output for
//! programs.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::json::set;
use crate::view::output::{Format, print_json, say};
use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{MigrationEnded, MigrationEvent, MigrationSample};
use terminal::human_size;

/// Interval of samples for people, in microseconds.
const LINE_INTERVAL_MICROS: u64 = 1_000_000;

#[derive(Debug)]
pub struct MigrationOutput {
    format: Format,
    /// When the next sample gets its line, in microseconds.
    next_line: Cell<u64>,
}

impl MigrationOutput {
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
            Some(Event::Decision(it)) => match it.succeeded {
                true => format!("{}: {}", it.action, it.why),
                false => format!("{} (failed): {}", it.action, it.why),
            },
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
pub fn seconds(event: &MigrationEvent) -> f64 {
    event.at_micros as f64 / 1e6
}

fn line(sample: &MigrationSample) -> String {
    let amount = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), human_size);
    let [sent, left, total] = [
        sample.data_processed,
        sample.data_remaining,
        sample.data_total,
    ]
    .map(amount);
    let throttle = match sample.throttle_percent {
        Some(percent @ 1..) => format!(", guest slowed down by {percent} %"),
        _ => String::new(),
    };
    let paused = if sample.is_paused {
        ", guest paused"
    } else {
        ""
    };
    format!("{sent} sent, {left} of {total} left{throttle}{paused}")
}

/// How a migration has succeeded.
pub fn summary(seconds: f64, ended: &MigrationEnded) -> String {
    let sent = ended.data_processed.map(human_size);
    let known = [
        Some(format!("migrated in {seconds:.1} s")),
        sent.map(|sent| format!("{sent} transferred")),
        ended.downtime_ms.map(|ms| format!("downtime {ms} ms")),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_left_and_what_hinders() {
        let mut sample = MigrationSample {
            data_total: Some(256 << 20),
            data_remaining: Some(200 << 20),
            ..MigrationSample::default()
        };
        assert_eq!(line(&sample), "? sent, 200 MiB of 256 MiB left");
        (sample.throttle_percent, sample.is_paused) = (Some(50), true);
        let last = line(&sample);
        assert!(
            last.ends_with(" left, guest slowed down by 50 %, guest paused"),
            "{last}"
        );
    }

    #[test]
    fn each_event_has_its_name_and_time_for_programs() {
        let sample = to_json(&MigrationEvent {
            at_micros: 3_000_000,
            event: Some(Event::Sample(MigrationSample::default())),
        });
        assert_eq!(
            (&sample["event"], &sample["seconds"]),
            (&json!("sample"), &json!(3.0))
        );
        assert_eq!(
            (&sample["dirtyRate"], &sample["isPaused"]),
            (&Value::Null, &json!(false))
        );
    }

    #[test]
    fn a_migration_is_summed_up_by_what_is_known() {
        let ended = MigrationEnded {
            downtime_ms: Some(84),
            data_processed: Some(3 << 20),
            ..MigrationEnded::default()
        };
        let text = "migrated in 2.0 s, 3 MiB transferred, downtime 84 ms";
        assert_eq!(summary(2.0, &ended), text);
        assert_eq!(
            summary(2.0, &MigrationEnded::default()),
            "migrated in 2.0 s"
        );
    }
}
