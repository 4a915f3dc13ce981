//! Records a migration for `launcherctl`: samples, decisions and the end, in order.
//!
//! The record holds only the last migration. When it is full, it drops every other sample, so a
//! long migration has fewer samples of its beginning.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use super::monitor::{MigrationMode, MonitorAction};
use api::proto::inspect::v1::migration_event::Event;
use api::proto::inspect::v1::{
    MigrationBegan, MigrationDecision, MigrationEnded, MigrationEvent, MigrationSample,
    MigrationStep,
};
use libvirt::JobStats;
use os::lock::lock;

/// Limit of kept events. A sample takes about 200 bytes.
const MAX_EVENTS: usize = 2048;

/// Ended migrations, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct MigrationTotals {
    pub succeeded: u64,
    pub failed: u64,
    /// libvirt's final statistics of the last one that succeeded.
    pub last: Option<JobStats>,
}

#[derive(Default)]
pub struct MigrationRecord {
    record: Mutex<Record>,
    totals: Mutex<MigrationTotals>,
    /// libvirt's last statistics of the migration in progress.
    progress: Mutex<Option<JobStats>>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct Record {
    began: Option<Instant>,
    events: VecDeque<(u64, MigrationEvent)>,
}

impl Record {
    /// Makes room for an event. Keeps the first event, which identifies the migration.
    fn thin_out(&mut self) {
        let mut is_odd = false;
        self.events.retain(|(_, event)| {
            is_odd ^= matches!(event.event, Some(Event::Sample(_)));
            is_odd || !matches!(event.event, Some(Event::Sample(_)))
        });
        while self.events.len() >= MAX_EVENTS {
            self.events.remove(1);
        }
    }
}

impl MigrationRecord {
    /// Starts a record and drops the previous one.
    pub fn begin(&self, began: MigrationBegan) {
        {
            let mut record = lock(&self.record);
            record.began = Some(Instant::now());
            record.events.clear();
        }
        let unix_micros = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        self.add(Event::Began(MigrationBegan {
            unix_micros,
            ..began
        }));
    }

    /// Records that libvirt's call starts or has ended.
    pub(super) fn step(&self, name: &str) {
        let name = name.to_owned();
        self.add(Event::Step(MigrationStep { name }));
    }

    pub(super) fn sample(&self, stats: &JobStats, mode: MigrationMode, is_paused: bool) {
        let page = stats.memory_page_size.unwrap_or(0);
        self.add(Event::Sample(MigrationSample {
            mode: mode.as_str().to_owned(),
            is_paused,
            data_total: stats.data_total,
            data_processed: stats.data_processed,
            data_remaining: stats.data_remaining,
            memory_total: stats.memory_total,
            memory_remaining: stats.memory_remaining,
            memory_bandwidth: stats.memory_bps,
            disk_bandwidth: stats.disk_bps,
            dirty_rate: stats
                .memory_dirty_rate
                .map(|pages| pages.saturating_mul(page)),
            iteration: stats.memory_iteration,
            expected_downtime_ms: stats.downtime_ms,
            throttle_percent: stats.auto_converge_throttle,
        }));
    }

    pub(super) fn decision(&self, action: MonitorAction, why: String, succeeded: bool) {
        self.add(Event::Decision(MigrationDecision {
            action: action.name().to_owned(),
            why,
            succeeded,
        }));
    }

    /// Records the end; `completed` has libvirt's final statistics.
    pub(super) fn ended(&self, failure: Option<String>, completed: Option<&JobStats>) {
        {
            let mut totals = lock(&self.totals);
            match &failure {
                Some(_) => totals.failed = totals.failed.saturating_add(1),
                None => {
                    totals.succeeded = totals.succeeded.saturating_add(1);
                    totals.last = completed.copied();
                }
            }
        }
        self.add(Event::Ended(MigrationEnded {
            failure: failure.unwrap_or_default(),
            total_ms: completed.and_then(|stats| stats.time_elapsed_ms),
            downtime_ms: completed.and_then(|stats| stats.downtime_ms),
            downtime_net_ms: completed.and_then(|stats| stats.downtime_net_ms),
            data_processed: completed.and_then(|stats| stats.data_processed),
        }));
    }

    fn add(&self, event: Event) {
        let mut record = lock(&self.record);
        let Some(began) = record.began else { return };
        if record.events.len() >= MAX_EVENTS {
            record.thin_out();
        }
        let at_micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let event = Some(event);
        let number = self.newest.borrow().saturating_add(1);
        record
            .events
            .push_back((number, MigrationEvent { at_micros, event }));
        // This runs under the lock, so that the numbers rise in order.
        self.newest.send_replace(number);
    }

    /// The progress of the migration that is leaving; `None` without one.
    pub fn progress(&self) -> Option<JobStats> {
        *lock(&self.progress)
    }

    pub(super) fn set_progress(&self, stats: Option<JobStats>) {
        *lock(&self.progress) = stats;
    }

    pub fn totals(&self) -> MigrationTotals {
        *lock(&self.totals)
    }

    /// Whether there was a migration.
    pub fn is_empty(&self) -> bool {
        lock(&self.record).began.is_none()
    }

    /// Waits for events after `number`, 0 for all. Returns the last one's number, and all events.
    pub async fn after(&self, number: u64) -> (u64, Vec<MigrationEvent>) {
        let mut newest = self.newest.subscribe();
        // Cannot fail: the sender lives as long as this waits.
        let _ = newest.wait_for(|newest| *newest > number).await;
        let record = lock(&self.record);
        let newer = record.events.iter().filter(|(own, _)| *own > number);
        let last = record.events.back().map_or(number, |(last, _)| *last);
        (last, newer.map(|(_, event)| event.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(record: &MigrationRecord, uid: &str) {
        record.begin(MigrationBegan {
            uid: uid.into(),
            ..MigrationBegan::default()
        });
    }

    fn uid(event: &MigrationEvent) -> Option<&str> {
        match event.event.as_ref()? {
            Event::Began(began) => Some(&began.uid),
            _ => None,
        }
    }

    #[tokio::test]
    async fn events_come_once_and_in_their_order() {
        let record = MigrationRecord::default();
        record.step("before all");
        assert!(record.is_empty());
        began(&record, "m-1");
        record.step("transfer");
        let (last, events) = record.after(0).await;
        assert_eq!((events.len(), uid(&events[0])), (2, Some("m-1")));
        let (newer, ()) = tokio::join!(record.after(last), async { record.ended(None, None) });
        assert!(matches!(
            newer.1[..],
            [MigrationEvent {
                event: Some(Event::Ended(_)),
                ..
            }]
        ));
        began(&record, "m-2");
        let (_, events) = record.after(newer.0).await;
        assert_eq!((events.len(), uid(&events[0])), (1, Some("m-2")));
    }

    #[test]
    fn the_figures_of_the_last_success_stay_until_the_next() {
        let record = MigrationRecord::default();
        let took = |downtime_ms| JobStats {
            downtime_ms: Some(downtime_ms),
            ..JobStats::default()
        };
        let totals = || {
            let totals = record.totals();
            let downtime = totals.last.and_then(|stats| stats.downtime_ms);
            (totals.succeeded, totals.failed, downtime)
        };
        assert_eq!(totals(), (0, 0, None));
        record.ended(None, Some(&took(40)));
        record.ended(Some("refused".into()), None);
        assert_eq!(totals(), (1, 1, Some(40)));
        record.ended(None, Some(&took(50)));
        assert_eq!(totals(), (2, 1, Some(50)));
    }

    #[tokio::test]
    async fn a_long_migration_keeps_its_beginning_its_decisions_and_its_end() {
        let record = MigrationRecord::default();
        began(&record, "m-1");
        record.decision(MonitorAction::Suspend, "late".into(), true);
        for _ in 0..10 * MAX_EVENTS {
            record.sample(&JobStats::default(), MigrationMode::PreCopy, false);
        }
        record.ended(Some("no".into()), None);
        let (_, events) = record.after(0).await;
        assert!(events.len() <= MAX_EVENTS && events.len() > MAX_EVENTS / 4);
        assert_eq!(uid(&events[0]), Some("m-1"));
        let is = |event: &MigrationEvent, wanted: fn(&Event) -> bool| {
            event.event.as_ref().is_some_and(wanted)
        };
        assert!(is(&events[1], |it| matches!(it, Event::Decision(_))));
        assert!(is(events.last().unwrap(), |it| matches!(
            it,
            Event::Ended(_)
        )));
        for _ in 0..2 * MAX_EVENTS {
            record.decision(MonitorAction::Abort, "again".into(), false);
        }
        let (_, events) = record.after(0).await;
        assert_eq!((events.len(), uid(&events[0])), (MAX_EVENTS, Some("m-1")));
    }
}
