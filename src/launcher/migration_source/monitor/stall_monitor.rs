//! The rules for a migration with `StallDetectorOptions`. If the migration is stalled and the
//! remaining data is at a local minimum, they start post-copy or allow a longer downtime. They wait
//! if the rest cannot be transferred in time, and abort if neither is allowed. At the deadline they
//! decide once more, and abort instead of waiting. [`super::time_limits`] has the other rules.

use api::migration_options::StallDetectorOptions;

use super::detector::{Detector, Record};
use super::downtime::QEMU_DEFAULT_MS;
use super::{ActionReason, Decision, MAX_DOWNTIME_MS, MigrationMode, MonitorAction, Rules, Sample};

#[derive(Debug)]
pub struct StallMonitor {
    rules: Rules,
    options: StallDetectorOptions,
    detector: Detector,
    pub mode: MigrationMode,
    /// Limit of the whole migration, in seconds. The longest downtime extends it at the deadline.
    acceptable_seconds: i64,
    /// Second of the migration by which a switchover must begin, and then by which it must end.
    switchover_deadline: i64,
    latest: Record,
    initial_downtime_is_set: bool,
    switchover_has_begun: bool,
    /// The current sample, and the decision that the caller carries out.
    sample: Sample,
    decided: Option<(Stage, MonitorAction)>,
}

/// The steps of handling a sample, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Beginning,
    Stall,
    Deadline,
}

impl StallMonitor {
    pub fn new(rules: Rules, options: StallDetectorOptions) -> Self {
        Self {
            rules,
            detector: Detector::new(options.clone()),
            options,
            mode: MigrationMode::PreCopy,
            acceptable_seconds: rules.acceptable_seconds,
            switchover_deadline: rules.acceptable_seconds,
            latest: Record::default(),
            initial_downtime_is_set: false,
            switchover_has_begun: false,
            sample: Sample::default(),
            decided: None,
        }
    }

    pub fn observe(&mut self, sample: &Sample) -> Option<Decision> {
        self.sample = *sample;
        if self.initial_downtime_is_set {
            return self.watch();
        }
        // A migration starts with QEMU's own limit, unless `maxDowntimeMs` is lower.
        let downtime = self.rules.max_downtime_ms.min(QEMU_DEFAULT_MS);
        let action = MonitorAction::SetMaxDowntime(downtime);
        self.decide(Stage::Beginning, action, ActionReason::NotBeforeAllowed)
    }

    pub fn performed(&mut self, succeeded: bool) -> Option<Decision> {
        let (stage, action) = self.decided.take()?;
        match stage {
            Stage::Beginning => {
                self.initial_downtime_is_set = succeeded;
                self.watch()
            }
            Stage::Stall => {
                self.after_stall(action, succeeded);
                self.check_deadline(action == MonitorAction::Abort)
            }
            Stage::Deadline => {
                self.after_deadline(action, succeeded);
                None
            }
        }
    }

    fn decide(
        &mut self,
        stage: Stage,
        action: MonitorAction,
        why: ActionReason,
    ) -> Option<Decision> {
        self.decided = Some((stage, action));
        Some(Decision { action, why })
    }

    fn watch(&mut self) -> Option<Decision> {
        if self.sample.is_paused_to_migrate && self.mode == MigrationMode::PreCopy {
            self.mode = MigrationMode::Paused;
        }
        if self.sample.is_aborting {
            return None;
        }
        match self.take_in() {
            Some((action, why)) => self.decide(Stage::Stall, action, why),
            None => self.check_deadline(false),
        }
    }

    /// Gives the sample to the detector. Returns what helps if the migration is stalled.
    fn take_in(&mut self) -> Option<(MonitorAction, ActionReason)> {
        let stats = *self.sample.running()?;
        let record = Record {
            remaining_bytes: stats.data_remaining?,
            elapsed_ms: stats.time_elapsed_ms?,
        };
        stats.memory_iteration?;
        if self.sample.is_iteration {
            self.latest = record;
            if !self.switchover_has_begun && self.detector.is_stalled(record) {
                return self.converge();
            }
        } else if self.mode != MigrationMode::PreCopy {
            self.latest = record;
        } else if let Some(bandwidth) = stats.memory_bps {
            self.detector.note_bandwidth(bandwidth);
        }
        None
    }

    /// What helps a stalled migration: with `allowWorkloadDisruption` post-copy or a long downtime;
    /// else the allowed downtime, or an abort where the expected one is above
    /// `precopyPossibleFactor` times that. `searchLocalMinima` waits for a local minimum.
    fn converge(&self) -> Option<(MonitorAction, ActionReason)> {
        let downtime_ms = self.detector.downtime_ms(self.latest);
        if self.options.search_local_minima && !self.detector.is_local_minimum(self.latest) {
            return None;
        }
        // The usual cause is a network that became slow a moment ago.
        if !self.ends_in_time(downtime_ms) {
            return None;
        }
        let minimum = ActionReason::LocalMinimum { downtime_ms };
        if self.rules.allow_disruption && self.rules.can_post_copy() {
            return Some((MonitorAction::StartPostCopy, minimum));
        }
        if self.rules.allow_disruption {
            return Some((MonitorAction::SetMaxDowntime(MAX_DOWNTIME_MS), minimum));
        }
        let (max_ms, factor) = (
            self.rules.max_downtime_ms,
            self.options.precopy_possible_factor.value(),
        );
        #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
        let max = max_ms as f64;
        Some(
            if f64::from(downtime_ms) <= max || f64::from(downtime_ms) <= max * factor {
                let why = ActionReason::DowntimeAllowed {
                    downtime_ms,
                    max_ms,
                };
                (MonitorAction::SetMaxDowntime(max_ms), why)
            } else {
                let why = ActionReason::DowntimeTooLong {
                    downtime_ms,
                    max_ms,
                    factor,
                };
                (MonitorAction::Abort, why)
            },
        )
    }

    /// Whether the rest can be transferred within the whole migration's limit, which is
    /// `completionTimeoutFactor` times the completion timeout.
    fn ends_in_time(&self, downtime_ms: u32) -> bool {
        let left = self.longest_seconds().saturating_sub(self.sample.seconds());
        self.detector.has_bandwidth() && i64::from(downtime_ms) <= left.saturating_mul(1000)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "seconds of a migration"
    )]
    fn longest_seconds(&self) -> i64 {
        (self.acceptable_seconds as f64 * self.options.completion_timeout_factor.value()) as i64
    }

    fn after_stall(&mut self, action: MonitorAction, succeeded: bool) {
        self.switchover_has_begun = succeeded || action == MonitorAction::Abort;
        match action {
            MonitorAction::StartPostCopy if succeeded => self.mode = MigrationMode::PostCopy,
            MonitorAction::SetMaxDowntime(_) if succeeded => self.extend_deadline(),
            _ => {}
        }
    }

    /// Gives the switchover its `switchoverTimeout`: QEMU may begin it later or never.
    fn extend_deadline(&mut self) {
        let timeout = i64::try_from(self.options.switchover_timeout).unwrap_or(i64::MAX);
        self.switchover_deadline = self.sample.seconds().saturating_add(timeout);
    }

    fn check_deadline(&mut self, is_aborted: bool) -> Option<Decision> {
        let deadline = match self.mode {
            MigrationMode::Paused => self.acceptable_seconds,
            _ => self.switchover_deadline,
        };
        let is_late = self.acceptable_seconds != 0 && self.sample.seconds() > deadline;
        // A post-copy cannot be aborted: the target has the newest memory.
        if !is_late || self.mode == MigrationMode::PostCopy || is_aborted {
            return None;
        }
        let (action, why) = self.at_deadline();
        self.decide(Stage::Deadline, action, why)
    }

    fn at_deadline(&self) -> (MonitorAction, ActionReason) {
        if !self.detector.has_bandwidth() {
            return (MonitorAction::Abort, ActionReason::NoBandwidth);
        }
        let why = ActionReason::TimeIsUp {
            seconds: self.acceptable_seconds,
        };
        let downtime_ms = self.detector.downtime_ms(self.latest);
        let action = if self.switchover_has_begun || !self.ends_in_time(downtime_ms) {
            MonitorAction::Abort
        } else if self.rules.can_post_copy() {
            MonitorAction::StartPostCopy
        } else if self.rules.allow_disruption {
            MonitorAction::SetMaxDowntime(MAX_DOWNTIME_MS)
        } else {
            MonitorAction::Abort
        };
        (action, why)
    }

    fn after_deadline(&mut self, action: MonitorAction, succeeded: bool) {
        if !succeeded {
            return;
        }
        match action {
            MonitorAction::StartPostCopy => {
                self.mode = MigrationMode::PostCopy;
                self.switchover_has_begun = true;
            }
            MonitorAction::SetMaxDowntime(_) => {
                self.acceptable_seconds = self.longest_seconds();
                self.extend_deadline();
                self.switchover_has_begun = true;
            }
            MonitorAction::Suspend | MonitorAction::Abort => {}
        }
    }
}
