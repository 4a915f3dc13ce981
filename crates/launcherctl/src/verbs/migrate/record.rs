//! What is known of a migration: its events, and how it has ended.

use std::fs;

use prost::Message;
use serde_json::{Value, json};

use crate::files::FileError;
use crate::host::registry::VmDir;
use crate::json::set;
use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{MigrationDecision, MigrationEnded, MigrationEvent, MigrationSample};
use client::refusal;

/// Where the events are, below the VM's root: protobuf messages, each after its length. The
/// launcher knows of migrations away from it only.
const EVENTS_FILE: &str = "/migration.events";
/// Events that are kept; then every second sample goes.
const MAX_EVENTS: usize = 8192;

/// The events of one migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    events: Vec<MigrationEvent>,
}

impl Record {
    /// Adds an event. The beginning of a migration removes what was known of another one.
    pub fn add(&mut self, event: &MigrationEvent) {
        if matches!(event.event, Some(Event::Began(_))) {
            self.events.clear();
        }
        if self.events.len() >= MAX_EVENTS {
            let mut is_kept = false;
            self.events.retain(|event| {
                is_kept = !is_kept;
                is_kept || !matches!(event.event, Some(Event::Sample(_)))
            });
        }
        self.events.push(event.clone());
    }

    /// How it has ended, and after how many seconds; `None` while it goes on.
    pub fn ended(&self) -> Option<(f64, &MigrationEnded)> {
        let mut latest_first = self.events.iter().rev();
        latest_first.find_map(|event| match &event.event {
            Some(Event::Ended(ended)) => Some((seconds(event), ended)),
            _ => None,
        })
    }

    /// Whether the guest has moved; `None` while it goes on.
    pub fn has_succeeded(&self) -> Option<bool> {
        self.ended().map(|(_, ended)| ended.failure.is_empty())
    }

    /// One line: how it has ended.
    pub fn summary(&self) -> String {
        let Some((seconds, ended)) = self.ended() else {
            return "the migration is in progress".to_owned();
        };
        if !ended.failure.is_empty() {
            let reason = refusal::plain(&ended.failure);
            return format!("the migration failed after {seconds:.1} s: {reason}");
        }
        let sent = ended.data_processed.map(bytes);
        let known = [
            Some(format!("migrated in {seconds:.1} s")),
            sent.map(|sent| format!("{sent} transferred")),
            ended.downtime_ms.map(|ms| format!("downtime {ms} ms")),
        ];
        known.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Keeps it beside the VM that has come by it, for `launcherctl migration`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store(&self, dir: &VmDir) -> Result<(), FileError> {
        let events = self.events.iter();
        let bytes: Vec<u8> = events
            .flat_map(Message::encode_length_delimited_to_vec)
            .collect();
        let file = dir.path(EVENTS_FILE);
        fs::write(&file, bytes).map_err(FileError::on("write", &file))
    }
}

/// The events of the migration by which the VM arrived; `None` if it has not, or they are
/// unreadable.
pub fn load(dir: &VmDir) -> Option<Vec<MigrationEvent>> {
    let bytes = fs::read(dir.path(EVENTS_FILE)).ok()?;
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while !rest.is_empty() && events.len() < MAX_EVENTS {
        events.push(MigrationEvent::decode_length_delimited(&mut rest).ok()?);
    }
    (!events.is_empty()).then_some(events)
}

/// An event for programs; `event` is its name.
pub fn to_json(event: &MigrationEvent) -> Value {
    let mut json = json!(event.event);
    set(&mut json, "/seconds", json!(seconds(event)));
    json
}

/// Seconds from the migration's beginning.
#[allow(clippy::cast_precision_loss, reason = "for display")]
pub fn seconds(event: &MigrationEvent) -> f64 {
    event.at_micros as f64 / 1e6
}

/// The guest's writes to its memory in bytes per second, if known: QEMU counts them from one pass
/// over the memory to the next, and reports 0 in the first.
fn guest_writes(sample: &MigrationSample) -> Option<u64> {
    let is_counted = sample.iteration > Some(1);
    sample.dirty_rate.filter(|rate| *rate > 0 || is_counted)
}

/// The downtime if the migration ended now, in milliseconds, if measured: QEMU computes it from the
/// guest's writes, and reports 300 before.
fn measured_downtime(sample: &MigrationSample) -> Option<u64> {
    let is_computed = sample.dirty_rate > Some(0);
    sample.expected_downtime_ms.filter(|_| is_computed)
}

/// A sample as a line for people.
pub fn line(sample: &MigrationSample) -> String {
    let amount = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
    let total = amount(sample.data_total);
    let speed = sample.memory_bandwidth.map(bytes);
    let pass = sample.iteration.filter(|pass| *pass > 0);
    let throttle = sample.throttle_percent.filter(|percent| *percent > 0);
    let mode = match sample.mode.as_str() {
        "PostCopy" => Some("post-copy"),
        _ => sample.is_paused.then_some("guest paused"),
    };
    let known = [
        Some(format!("{} sent", amount(sample.data_processed))),
        Some(format!("{} of {total} left", amount(sample.data_remaining))),
        speed.map(|speed| format!("{speed}/s")),
        guest_writes(sample).map(|rate| format!("guest writes {}/s", bytes(rate))),
        pass.map(|pass| format!("pass {pass}")),
        measured_downtime(sample).map(|downtime| format!("downtime would be {downtime} ms")),
        throttle.map(|percent| format!("guest slowed down by {percent} %")),
        mode.map(str::to_owned),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A decision for people.
pub fn decision(decision: &MigrationDecision) -> String {
    let action = match decision.action.as_str() {
        "StartPostCopy" => "post-copy begins",
        "SetMaxDowntime" => "maximum downtime is set",
        "Suspend" => "guest is paused",
        "Abort" => "migration is cancelled",
        other => other,
    };
    let result = if decision.succeeded { "" } else { " (failed)" };
    format!("{action}{result}: {}", decision.why)
}

/// An amount for people.
#[allow(clippy::cast_precision_loss, reason = "for display")]
fn bytes(amount: u64) -> String {
    crate::view::size::bytes(amount as f64)
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
            dirty_rate: Some(60 << 20),
            expected_downtime_ms: Some(6000),
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
        let text = "the migration failed after 60.0 s: Live migration has been aborted";
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
        let text = "migrated in 2.0 s, 3.0 MiB transferred, downtime 84 ms";
        assert_eq!(record.summary(), text);
    }

    #[test]
    fn a_long_migration_keeps_its_beginning_and_its_decisions() {
        let mut record = Record::default();
        record.add(&began());
        record.add(&event(0, Event::Decision(MigrationDecision::default())));
        for second in 0..3 * MAX_EVENTS as u64 {
            record.add(&event(second, Event::Sample(MigrationSample::default())));
        }
        assert!(record.events.len() <= MAX_EVENTS);
        let first: Vec<_> = record.events.iter().take(3).map(to_json).collect();
        assert_eq!(
            (&first[0]["event"], &first[1]["event"]),
            (&json!("began"), &json!("decision"))
        );
        assert!(first[2]["seconds"].as_f64().unwrap() < 8.0);
    }

    #[test]
    fn events_are_read_as_they_were_stored() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        assert_eq!(load(&vm), None);
        let events = vec![began(), event(1, Event::Sample(sample()))];
        let mut record = Record::default();
        events.iter().for_each(|event| record.add(event));
        record.store(&vm).unwrap();
        assert_eq!(load(&vm), Some(events));
        fs::write(vm.path(EVENTS_FILE), [200, 1]).unwrap();
        assert_eq!(load(&vm), None);
    }

    #[test]
    fn a_line_says_what_is_left_and_what_hinders() {
        let first = "? sent, 200.0 MiB of 256.0 MiB left, 31.0 MiB/s, guest writes 60.0 MiB/s, pass 1, downtime would be 6000 ms";
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
            dirty_rate: Some(0),
            ..sample()
        };
        assert_eq!(
            line(&early),
            "10.0 MiB sent, 200.0 MiB of 256.0 MiB left, pass 1"
        );
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
