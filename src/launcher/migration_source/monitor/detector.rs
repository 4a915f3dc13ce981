//! Detects whether a migration is stalled, and when the remaining data is at a local minimum.
//!
//! Each time QEMU starts a new pass over the memory, the remaining bytes become a record. The
//! migration is stalled once a record is not clearly below the smallest record from before the
//! progress window. From then on, a record close to the best one is a local minimum: the moment to
//! switch over. If no such record comes in time, the next best one counts as the best. Each time
//! this wait is shorter.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use api::migration_options::StallDetectorOptions;

/// The state at the start of an iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub elapsed_ms: u64,
    pub remaining_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Detector {
    options: StallDetectorOptions,
    /// Bytes per second; 0 before the first sample.
    bandwidth: f64,
    /// Records of the progress window, each smaller than those before it.
    candidates: VecDeque<Record>,
    /// The smallest record from before the progress window.
    minimum: Option<Record>,
    stall: Option<Stall>,
}

/// A stalled migration.
#[derive(Debug)]
struct Stall {
    best_bytes: u64,
    /// Remaining bytes at the iterations since.
    history: BinaryHeap<Reverse<u64>>,
    patience_ms: u64,
    patience_ends_ms: u64,
}

impl Detector {
    pub fn new(options: StallDetectorOptions) -> Self {
        Self {
            options,
            bandwidth: 0.0,
            candidates: VecDeque::new(),
            minimum: None,
            stall: None,
        }
    }

    /// Adds a sample of the bandwidth, in bytes per second.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a bandwidth below 2^53 bytes a second"
    )]
    pub fn note_bandwidth(&mut self, sample: u64) {
        let sample = sample as f64;
        let alpha = self.options.ewma_alpha.value();
        self.bandwidth = if self.has_bandwidth() {
            alpha * sample + (1.0 - alpha) * self.bandwidth
        } else {
            sample
        };
    }

    #[allow(clippy::float_cmp, reason = "0 is the state before the first sample")]
    pub fn has_bandwidth(&self) -> bool {
        self.bandwidth != 0.0
    }

    /// Milliseconds to transfer the rest, by the bandwidth's average (`ewmaAlpha`); 0 while that is
    /// unknown.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, which the conversion limits"
    )]
    pub fn downtime_ms(&self, record: Record) -> u32 {
        if !self.has_bandwidth() {
            return 0;
        }
        let bytes_per_ms = self.bandwidth / 1000.0;
        (record.remaining_bytes as f64 / bytes_per_ms) as u32
    }

    /// Adds a record. Returns whether the migration is stalled. Then the patience shrinks by
    /// `patienceWindowDecayFactor` each time that no better record came.
    pub fn is_stalled(&mut self, record: Record) -> bool {
        if !self.has_bandwidth() {
            return false;
        }
        self.add_candidate(record);
        match &mut self.stall {
            Some(stall) => {
                stall.relax(record, self.options.patience_window_decay_factor.value());
                true
            }
            None => self.begins_to_stall(record),
        }
    }

    /// The progress window, `stallProgressTimeout`.
    fn window_ms(&self) -> u64 {
        self.options.stall_progress_timeout.saturating_mul(1000)
    }

    fn add_candidate(&mut self, record: Record) {
        let window = self.window_ms();
        while let Some(&oldest) = self.candidates.front() {
            if record.elapsed_ms.wrapping_sub(oldest.elapsed_ms) < window {
                break;
            }
            self.candidates.pop_front();
            if self
                .minimum
                .is_none_or(|min| oldest.remaining_bytes < min.remaining_bytes)
            {
                self.minimum = Some(oldest);
            }
        }
        // Larger records can never become the minimum.
        let above = self
            .minimum
            .is_some_and(|min| record.remaining_bytes > min.remaining_bytes);
        let last = self.candidates.back();
        let no_new_low = last.is_some_and(|last| record.remaining_bytes >= last.remaining_bytes);
        if !above && !no_new_low {
            self.candidates.push_back(record);
        }
    }

    /// Whether the record is less than `stallMargin` below the smallest one before the window.
    fn begins_to_stall(&mut self, record: Record) -> bool {
        let Some(minimum) = self.minimum else {
            return false;
        };
        let threshold = scaled(minimum.remaining_bytes, 1.0 - self.options.margin());
        if record.remaining_bytes < threshold {
            return false;
        }
        let candidates = self.candidates.iter().map(|it| it.remaining_bytes);
        let patience_ms = self.window_ms();
        self.stall = Some(Stall {
            best_bytes: candidates.fold(minimum.remaining_bytes, u64::min),
            history: BinaryHeap::new(),
            patience_ms,
            patience_ends_ms: record.elapsed_ms.saturating_add(patience_ms),
        });
        true
    }

    /// Whether the record is at most `stallMargin` above the best one.
    pub fn is_local_minimum(&self, record: Record) -> bool {
        let best = self.stall.as_ref().map_or(0, |stall| stall.best_bytes);
        record.remaining_bytes <= scaled(best, 1.0 + self.options.margin())
    }
}

impl Stall {
    fn relax(&mut self, record: Record, decay: f64) {
        self.history.push(Reverse(record.remaining_bytes));
        if record.elapsed_ms < self.patience_ends_ms {
            return;
        }
        if let Some(Reverse(lowest)) = self.history.pop() {
            self.best_bytes = lowest;
        }
        self.patience_ms = scaled(self.patience_ms, decay);
        self.patience_ends_ms = record.elapsed_ms.saturating_add(self.patience_ms);
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes below 2^53; a negative result is 0"
)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}
