//! The rules for a migration without `StallDetectorOptions`. After its completion timeout
//! (`completionTimeoutPerGiB`), it is helped once, by post-copy, a longer downtime or a pause of
//! the guest. If that is not allowed, it is aborted. It is also aborted if it makes no progress for
//! the progress timeout (`progressTimeout`). [`super::stall_monitor`] has the other rules.

use std::time::Duration;

use api::migration_options::DowntimeTuning;

use super::downtime::Tuner;
use super::{ActionReason, Decision, MAX_DOWNTIME_MS, MigrationMode, MonitorAction, Rules, Sample};

#[derive(Debug)]
pub struct TimeLimits {
    rules: Rules,
    pub mode: MigrationMode,
    /// Limit of the whole migration, in seconds; extended once the guest is paused for it.
    acceptable_seconds: i64,
    /// Bytes that remained at the last sample; 0 before the first.
    remaining: u64,
    last_progress: Duration,
    tuner: Option<Tuner>,
    /// The current sample, and the decision that the caller carries out.
    sample: Sample,
    decided: Option<Decided>,
}

/// The decisions on a sample, in order.
#[derive(Debug, Clone, Copy)]
enum Decided {
    /// Another downtime, in milliseconds.
    Tuned(u64),
    /// Help or an end.
    Limited(MonitorAction),
}

impl TimeLimits {
    pub fn new(rules: Rules, tuning: Option<&DowntimeTuning>) -> Self {
        Self {
            rules,
            tuner: tuning.map(|options| Tuner::new(rules.max_downtime_ms, options)),
            sample: Sample::default(),
            mode: MigrationMode::PreCopy,
            acceptable_seconds: rules.acceptable_seconds,
            remaining: 0,
            last_progress: Duration::ZERO,
            decided: None,
        }
    }

    pub fn observe(&mut self, sample: &Sample) -> Option<Decision> {
        self.note_progress(sample);
        self.sample = *sample;
        self.tune().or_else(|| self.limit())
    }

    // D-mig-33 (docs/differences.md).
    fn tune(&mut self) -> Option<Decision> {
        if self.mode != MigrationMode::PreCopy || self.sample.is_aborting {
            return None;
        }
        let tuner = self.tuner.as_mut()?;
        let downtime_ms = tuner.next(&self.sample)?;
        self.decided = Some(Decided::Tuned(downtime_ms));
        let why = ActionReason::Tuning {
            from_ms: tuner.current_ms,
            max_ms: tuner.max_ms,
        };
        let action = MonitorAction::SetMaxDowntime(downtime_ms);
        Some(Decision { action, why })
    }

    fn limit(&mut self) -> Option<Decision> {
        let decision = self.decide(&self.sample)?;
        self.decided = Some(Decided::Limited(decision.action));
        Some(decision)
    }

    /// A sample has made progress if less is left than at the previous one. The time before libvirt
    /// knows what is left does not count.
    // D-mig-35 (docs/differences.md).
    fn note_progress(&mut self, sample: &Sample) {
        let known = sample.running().and_then(|stats| stats.data_remaining);
        let remaining = known.unwrap_or(self.remaining);
        if self.remaining == 0 || remaining < self.remaining {
            self.last_progress = sample.elapsed;
        }
        self.remaining = remaining;
    }

    fn decide(&self, sample: &Sample) -> Option<Decision> {
        // The guest runs on the target, and only the target has its newest memory.
        if self.mode == MigrationMode::PostCopy {
            return None;
        }
        // D-mig-37 (docs/differences.md). Post-copy cannot be taken back.
        if sample.is_aborting {
            return None;
        }
        let time_is_up = self.acceptable_seconds != 0 && sample.seconds() > self.acceptable_seconds;
        let too_late = ActionReason::TimeIsUp {
            seconds: self.acceptable_seconds,
        };
        if time_is_up && self.rules.allow_disruption && self.mode != MigrationMode::Paused {
            return Some(Decision {
                action: self.help(),
                why: too_late,
            });
        }
        let delay = sample.elapsed.saturating_sub(self.last_progress).as_secs();
        let limit = u64::try_from(self.rules.progress_timeout).unwrap_or(0);
        let why = if self.rules.progress_timeout != 0 && delay > limit {
            ActionReason::NoProgress { seconds: delay }
        } else if time_is_up {
            too_late
        } else {
            return None;
        };
        let action = MonitorAction::Abort;
        Some(Decision { action, why })
    }

    /// Post-copy where `allowPostCopy` lets it, else a longer downtime (VFIO) or a pause of the
    /// guest.
    fn help(&self) -> MonitorAction {
        if self.rules.can_post_copy() {
            return MonitorAction::StartPostCopy;
        }
        if self.rules.has_vfio {
            // Paused vCPUs do not stop a host device's writes to memory, but a switchover does.
            let seconds = u64::try_from(self.acceptable_seconds.saturating_mul(2)).unwrap_or(0);
            return MonitorAction::SetMaxDowntime(
                seconds.saturating_mul(1000).min(MAX_DOWNTIME_MS),
            );
        }
        MonitorAction::Suspend
    }

    pub fn performed(&mut self, succeeded: bool) -> Option<Decision> {
        match self.decided.take()? {
            Decided::Tuned(downtime_ms) => {
                if let Some(tuner) = self.tuner.as_mut().filter(|_| succeeded) {
                    tuner.has_set(downtime_ms, self.sample.elapsed);
                }
                self.limit()
            }
            Decided::Limited(action) => {
                if succeeded {
                    self.after(action);
                }
                None
            }
        }
    }

    fn after(&mut self, action: MonitorAction) {
        match action {
            MonitorAction::StartPostCopy => self.mode = MigrationMode::PostCopy,
            MonitorAction::SetMaxDowntime(_) | MonitorAction::Suspend => {
                self.acceptable_seconds = self.acceptable_seconds.saturating_mul(2);
                // The reference's word for a migration that was helped once, paused or not.
                self.mode = MigrationMode::Paused;
            }
            MonitorAction::Abort => {}
        }
    }
}
