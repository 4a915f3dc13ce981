//! Raises the allowed downtime step by step (`downtimeTuning`, KubeVirt v1.10): a migration that
//! converges early gets the short one.

use std::time::Duration;

use api::migration_options::DowntimeTuning;

use super::Sample;

/// QEMU's own limit, before another is set.
pub(super) const QEMU_DEFAULT_MS: u64 = 300;

const INITIAL_MS: u64 = 150;
const STEPS: u64 = 7;
const START_AFTER_ITERATION: u64 = 3;
const COOLDOWN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Tuner {
    initial_ms: u64,
    step_ms: u64,
    pub max_ms: u64,
    start_after_iteration: u64,
    cooldown: Duration,
    /// The limit that QEMU has.
    pub current_ms: u64,
    has_begun: bool,
    last: Option<Duration>,
}

impl Tuner {
    pub fn new(max_ms: u64, options: &DowntimeTuning) -> Self {
        let given = |value: Option<i64>, default| {
            value
                .and_then(|it| u64::try_from(it).ok())
                .unwrap_or(default)
        };
        let at_least_1 =
            |value: Option<i32>, default| given(value.map(|it| it.max(1).into()), default);
        let initial_ms = given(options.initial_ms, INITIAL_MS).min(max_ms);
        let steps = at_least_1(options.steps, STEPS);
        let cooldown = at_least_1(options.cooldown_seconds, COOLDOWN.as_secs());
        Self {
            initial_ms,
            step_ms: (max_ms.saturating_sub(initial_ms).checked_div(steps))
                .unwrap_or(0)
                .max(1),
            max_ms,
            start_after_iteration: given(options.start_after_iteration, START_AFTER_ITERATION),
            cooldown: Duration::from_secs(cooldown),
            current_ms: QEMU_DEFAULT_MS,
            has_begun: false,
            last: None,
        }
    }

    /// The limit to set now, in milliseconds.
    pub fn next(&mut self, sample: &Sample) -> Option<u64> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(self.initial_ms);
        }
        let iteration = sample.stats.as_ref()?.memory_iteration?;
        let pause = self.last.map(|last| sample.elapsed.saturating_sub(last));
        if iteration < self.start_after_iteration || pause.is_some_and(|it| it < self.cooldown) {
            return None;
        }
        let next = self
            .current_ms
            .saturating_add(self.step_ms)
            .min(self.max_ms);
        (next > self.current_ms).then_some(next)
    }

    /// QEMU has this limit since `elapsed`, the time since the migration began.
    pub fn has_set(&mut self, downtime_ms: u64, elapsed: Duration) {
        self.current_ms = downtime_ms;
        self.last = Some(elapsed);
    }
}
