//! What is known of a migration: its events, put together.

use serde_json::{Value, json};

use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{
    MigrationBegan, MigrationDecision, MigrationEnded, MigrationEvent, MigrationSample,
};
use client::refusal;

/// Samples that are kept; then every second one goes.
const MAX_SAMPLES: usize = 8192;

/// Something, and when it was, in seconds from the migration's beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    pub seconds: f64,
    pub what: T,
}

/// A migration so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    pub began: MigrationBegan,
    pub samples: Vec<At<MigrationSample>>,
    pub decisions: Vec<At<MigrationDecision>>,
    pub ended: Option<At<MigrationEnded>>,
    /// When libvirt was called.
    transfer: f64,
}

impl Record {
    /// Takes an event.
    pub fn add(&mut self, event: &MigrationEvent) {
        let seconds = seconds(event);
        match &event.event {
            // Another migration begins.
            Some(Event::Began(began)) => {
                *self = Self {
                    began: began.clone(),
                    ..Self::default()
                };
            }
            Some(Event::Sample(sample)) => {
                if self.samples.len() >= MAX_SAMPLES {
                    let mut is_kept = false;
                    self.samples.retain(|_| {
                        is_kept = !is_kept;
                        is_kept
                    });
                }
                self.add_first(sample);
                let what = sample.clone();
                self.samples.push(At { seconds, what });
            }
            Some(Event::Decision(decision)) => {
                let what = decision.clone();
                self.decisions.push(At { seconds, what });
            }
            Some(Event::Ended(ended)) => {
                if ended.failure.is_empty() {
                    self.add_last(ended, seconds);
                }
                let what = ended.clone();
                self.ended = Some(At { seconds, what });
            }
            Some(Event::Step(step)) if step.name == "transfer" => self.transfer = seconds,
            Some(Event::Step(_)) | None => {}
        }
    }

    /// Before the first sample, when libvirt was called, nothing was sent: so a short migration has a beginning, too.
    fn add_first(&mut self, next: &MigrationSample) {
        if !self.samples.is_empty() || next.data_processed.unwrap_or(0) == 0 {
            return;
        }
        let what = MigrationSample {
            mode: next.mode.clone(),
            data_total: next.data_total,
            data_processed: Some(0),
            data_remaining: next.data_total,
            ..MigrationSample::default()
        };
        let seconds = self.transfer;
        self.samples.push(At { seconds, what });
    }

    /// At the end nothing is left, and libvirt says how much was sent.
    fn add_last(&mut self, ended: &MigrationEnded, seconds: f64) {
        let Some(processed) = ended.data_processed else {
            return;
        };
        let last = self.samples.last().map(|last| last.what.clone());
        let last = last.unwrap_or_default();
        if last.data_remaining == Some(0) {
            return;
        }
        let what = MigrationSample {
            data_total: last.data_total.or(Some(processed)),
            data_processed: Some(processed),
            data_remaining: Some(0),
            mode: last.mode,
            ..MigrationSample::default()
        };
        self.add_first(&what);
        self.samples.push(At { seconds, what });
    }

    /// The events that make the same record.
    #[must_use]
    pub fn to_events(&self) -> Vec<MigrationEvent> {
        let samples = self.samples.iter();
        let samples = samples.map(|at| event(at.seconds, Event::Sample(at.what.clone())));
        let decisions = self.decisions.iter();
        let decisions = decisions.map(|at| event(at.seconds, Event::Decision(at.what.clone())));
        let mut events: Vec<_> = samples.chain(decisions).collect();
        events.sort_by_key(|event| event.at_micros);
        events.insert(0, event(0.0, Event::Began(self.began.clone())));
        let ended = self.ended.iter();
        events.extend(ended.map(|at| event(at.seconds, Event::Ended(at.what.clone()))));
        events
    }

    /// Whether it has ended, and the guest has not left.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let ended = self.ended.as_ref();
        ended.is_some_and(|ended| !ended.what.failure.is_empty())
    }

    /// How it has ended, in a sentence; or how far it is.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(At { seconds, what }) = &self.ended else {
            return "the migration is in progress".to_owned();
        };
        if !what.failure.is_empty() {
            return format!(
                "the migration failed after {seconds:.1} s: {}",
                refusal::plain(&what.failure)
            );
        }
        let mut text = format!("migrated in {seconds:.1} s");
        if let Some(processed) = what.data_processed {
            text.push_str(&format!(", {} transferred", bytes(processed)));
        }
        if let Some(downtime) = what.downtime_ms {
            text.push_str(&format!(", downtime {downtime} ms"));
        }
        text
    }
}

/// An event for programs.
#[must_use]
pub fn to_json(event: &MigrationEvent) -> Value {
    let seconds = seconds(event);
    match &event.event {
        Some(Event::Began(it)) => json!({
            "event": "began", "seconds": seconds, "uid": it.uid, "unixMicros": it.unix_micros,
            "maxDowntimeMs": it.max_downtime_ms, "bandwidthLimit": it.bandwidth_limit,
        }),
        Some(Event::Step(it)) => json!({"event": "step", "seconds": seconds, "name": it.name}),
        Some(Event::Sample(it)) => json!({
            "event": "sample", "seconds": seconds, "mode": it.mode, "isPaused": it.is_paused,
            "dataTotal": it.data_total, "dataProcessed": it.data_processed,
            "dataRemaining": it.data_remaining, "memoryTotal": it.memory_total,
            "memoryRemaining": it.memory_remaining, "memoryBandwidth": it.memory_bandwidth,
            "diskBandwidth": it.disk_bandwidth, "dirtyRate": it.dirty_rate,
            "iteration": it.iteration, "expectedDowntimeMs": it.expected_downtime_ms,
            "throttlePercent": it.throttle_percent,
        }),
        Some(Event::Decision(it)) => json!({
            "event": "decision", "seconds": seconds, "action": it.action, "why": it.why,
            "succeeded": it.succeeded,
        }),
        Some(Event::Ended(it)) => json!({
            "event": "ended", "seconds": seconds, "failure": it.failure, "totalMs": it.total_ms,
            "downtimeMs": it.downtime_ms, "downtimeNetMs": it.downtime_net_ms,
            "dataProcessed": it.data_processed,
        }),
        None => json!({"event": "unknown", "seconds": seconds}),
    }
}

/// Bytes a second that the guest writes to its memory, where that is known: QEMU counts them from one pass over the memory
/// to the next, and says 0 in the first one.
#[must_use]
pub fn guest_writes(sample: &MigrationSample) -> Option<u64> {
    let is_counted = sample.iteration > Some(1);
    sample.dirty_rate.filter(|rate| *rate > 0 || is_counted)
}

/// The downtime if the migration ended now, in milliseconds, where it was measured: QEMU computes it from what the guest
/// writes, and says 300 before.
#[must_use]
pub fn measured_downtime(sample: &MigrationSample) -> Option<u64> {
    let is_computed = sample.dirty_rate > Some(0);
    sample.expected_downtime_ms.filter(|_| is_computed)
}

/// A sample for people, in a line.
#[must_use]
pub fn line(sample: &MigrationSample) -> String {
    let amount = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
    let mut text = format!(
        "{} sent, {} of {} left",
        amount(sample.data_processed),
        amount(sample.data_remaining),
        amount(sample.data_total),
    );
    if let Some(rate) = sample.memory_bandwidth {
        text.push_str(&format!(", {}/s", bytes(rate)));
    }
    if let Some(rate) = guest_writes(sample) {
        text.push_str(&format!(", guest writes {}/s", bytes(rate)));
    }
    if let Some(pass @ 1..) = sample.iteration {
        text.push_str(&format!(", pass {pass}"));
    }
    if let Some(downtime) = measured_downtime(sample) {
        text.push_str(&format!(", downtime would be {downtime} ms"));
    }
    if let Some(percent @ 1..) = sample.throttle_percent {
        text.push_str(&format!(", guest slowed down by {percent} %"));
    }
    match sample.mode.as_str() {
        "PostCopy" => text.push_str(", post-copy"),
        _ if sample.is_paused => text.push_str(", guest paused"),
        _ => {}
    }
    text
}

/// A decision for people.
#[must_use]
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

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that was made of microseconds"
)]
fn event(seconds: f64, event: Event) -> MigrationEvent {
    MigrationEvent {
        at_micros: (seconds * 1e6).round() as u64,
        event: Some(event),
    }
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn seconds(event: &MigrationEvent) -> f64 {
    event.at_micros as f64 / 1e6
}

/// An amount for people.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "for display")]
pub fn bytes(amount: u64) -> String {
    crate::view::size::bytes(amount as f64)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api::proto::inspect::v1::MigrationStep;

    pub fn event(seconds: u64, event: Event) -> MigrationEvent {
        MigrationEvent {
            at_micros: seconds * 1_000_000,
            event: Some(event),
        }
    }

    /// A guest that dirties memory faster than it is transferred, until that is given up.
    pub fn stalled() -> Record {
        let mut record = Record::default();
        let began = MigrationBegan {
            uid: "m-1".into(),
            max_downtime_ms: 300,
            bandwidth_limit: 32 << 20,
            ..MigrationBegan::default()
        };
        record.add(&event(0, Event::Began(began)));
        for second in 0..60 {
            let sample = MigrationSample {
                mode: if second < 50 { "PreCopy" } else { "Paused" }.into(),
                is_paused: second >= 50,
                data_total: Some(256 << 20),
                data_remaining: Some((200 - (second % 5) * 10) << 20),
                memory_bandwidth: Some(31 << 20),
                dirty_rate: Some(60 << 20),
                expected_downtime_ms: Some(6000 + second * 10),
                throttle_percent: Some(second / 10 * 10),
                iteration: Some(1 + second / 5),
                ..MigrationSample::default()
            };
            record.add(&event(second, Event::Sample(sample)));
        }
        for (second, action, why) in [
            (50, "Suspend", "not completed after 49 s"),
            (58, "Abort", "stuck <for> 8 s"),
        ] {
            let decision = MigrationDecision {
                action: action.into(),
                why: why.into(),
                succeeded: true,
            };
            record.add(&event(second, Event::Decision(decision)));
        }
        let ended = MigrationEnded {
            failure: "Live migration has been aborted".into(),
            ..MigrationEnded::default()
        };
        record.add(&event(60, Event::Ended(ended)));
        record
    }

    #[test]
    fn events_make_a_record_and_a_new_beginning_empties_it() {
        let mut record = stalled();
        assert_eq!((record.samples.len(), record.decisions.len()), (60, 2));
        let text = "the migration failed after 60.0 s: Live migration has been aborted";
        assert_eq!(record.summary(), text);
        record.add(&event(0, Event::Began(MigrationBegan::default())));
        assert_eq!(record.summary(), "the migration is in progress");
        let ended = MigrationEnded {
            downtime_ms: Some(84),
            data_processed: Some(3 << 20),
            ..MigrationEnded::default()
        };
        record.add(&event(2, Event::Ended(ended)));
        let text = "migrated in 2.0 s, 3.0 MiB transferred, downtime 84 ms";
        assert_eq!(record.summary(), text);
    }

    #[test]
    fn a_short_migration_has_a_beginning_and_an_end() {
        let mut record = Record::default();
        record.add(&event(0, Event::Began(MigrationBegan::default())));
        let name = "transfer".to_owned();
        record.add(&event(1, Event::Step(MigrationStep { name })));
        let sample = MigrationSample {
            data_total: Some(256 << 20),
            data_processed: Some(10 << 20),
            data_remaining: Some(200 << 20),
            iteration: Some(1),
            dirty_rate: Some(0),
            expected_downtime_ms: Some(300),
            ..MigrationSample::default()
        };
        // What QEMU does not know yet is left out.
        assert_eq!(
            line(&sample),
            "10.0 MiB sent, 200.0 MiB of 256.0 MiB left, pass 1"
        );
        let ended = MigrationEnded {
            data_processed: Some(20 << 20),
            ..MigrationEnded::default()
        };
        let mut without_samples = record.clone();
        record.add(&event(2, Event::Sample(sample)));
        for record in [&mut record, &mut without_samples] {
            record.add(&event(3, Event::Ended(ended.clone())));
        }
        let curve = |record: &Record| -> Vec<_> {
            let points = record.samples.iter();
            let point = |at: &At<MigrationSample>| (at.seconds, at.what.data_remaining);
            points.map(point).collect()
        };
        let mib = |amount: u64| Some(amount << 20);
        let points = [(1.0, mib(256)), (2.0, mib(200)), (3.0, Some(0))];
        assert_eq!(curve(&record), points);
        let points = [(1.0, mib(20)), (3.0, Some(0))];
        assert_eq!(curve(&without_samples), points);
        // Kept and read again it is the same.
        let mut again = Record::default();
        record.to_events().iter().for_each(|it| again.add(it));
        assert_eq!(
            (&again.samples, &again.ended),
            (&record.samples, &record.ended)
        );
        assert!(!again.has_failed() && stalled().has_failed());
    }

    #[test]
    fn a_long_migration_keeps_its_beginning() {
        let mut record = Record::default();
        for second in 0..3 * MAX_SAMPLES as u64 {
            let sample = Event::Sample(MigrationSample::default());
            record.add(&event(second, sample));
        }
        assert!(record.samples.len() <= MAX_SAMPLES);
        assert!(record.samples[0].seconds < 8.0);
    }

    #[test]
    fn a_line_says_what_is_left_and_what_hinders() {
        let record = stalled();
        let first = "? sent, 200.0 MiB of 256.0 MiB left, 31.0 MiB/s, guest writes 60.0 MiB/s, pass 1, downtime would be 6000 ms";
        assert_eq!(line(&record.samples[0].what), first);
        let last = line(&record.samples.last().unwrap().what);
        assert!(
            last.ends_with(", guest slowed down by 50 %, guest paused"),
            "{last}"
        );
        let text = decision(&record.decisions[0].what);
        assert_eq!(text, "guest is paused: not completed after 49 s");
    }

    #[test]
    fn each_event_has_its_name_and_time_for_programs() {
        let began = to_json(&event(0, Event::Began(MigrationBegan::default())));
        assert_eq!(
            (&began["event"], &began["seconds"]),
            (&json!("began"), &json!(0.0))
        );
        let sample = to_json(&event(3, Event::Sample(MigrationSample::default())));
        assert_eq!(
            (&sample["seconds"], &sample["dirtyRate"]),
            (&json!(3.0), &Value::Null)
        );
    }
}
