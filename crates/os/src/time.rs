//! Deadlines and durations that cannot overflow.

use std::time::Duration;

use tokio::time::Instant;

/// Limit of a deadline: no process runs that long.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The time `timeout` from now. `Instant + Duration` panics when the sum is out of range, and some
/// timeouts come from flags, VMIs and sidecars: one that is longer than a century counts as a
/// century.
#[must_use]
pub fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout.min(MAX_TIMEOUT)).unwrap_or(now)
}

/// Whole milliseconds, as they are logged.
#[must_use]
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_timeout_is_far_away() {
        assert!(deadline(Duration::MAX) > deadline(Duration::from_secs(1 << 31)));
        assert_eq!(milliseconds(Duration::MAX), u64::MAX);
    }
}
