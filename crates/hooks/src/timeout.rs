//! How long a hook may take within its request:
//!
//! ```text
//!  request   ├───────────────────────────── deadline ┤
//!  hook call ├── at most HOOK_CALL_TIMEOUT ─┤        │
//!                                           ├reserve─┤  for the answer to virt-handler
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// Limit of one hook call, even if its request has more time left; the same as in KubeVirt.
pub const HOOK_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Part of a request's time that hooks do not get, so that a slow hook's error reaches the caller.
const ANSWER_RESERVE: Duration = Duration::from_millis(500);

/// The deadline of a hook call that starts now, limited by its request and [`HOOK_CALL_TIMEOUT`].
// D-hook-5 (docs/differences.md).
pub fn hook_call_deadline(request_deadline: Instant) -> Instant {
    let left = request_deadline.saturating_duration_since(Instant::now());
    os::time::deadline(hook_call_timeout(left))
}

/// The time for a hook call in a request that has `left` left.
fn hook_call_timeout(left: Duration) -> Duration {
    left.saturating_sub(ANSWER_RESERVE.min(left / 10))
        .min(HOOK_CALL_TIMEOUT)
}

/// Renders a time limit, rounded up: `300 ms`, `20 s`. The time left differs a little between two
/// attempts; rounding gives their errors one text, and so one Kubernetes event.
// D-vm-18 (docs/differences.md).
pub fn display_limit(time: Duration) -> String {
    let milliseconds = time.as_millis().div_ceil(100).saturating_mul(100);
    if milliseconds < 1000 {
        format!("{milliseconds} ms")
    } else {
        format!("{} s", milliseconds.div_ceil(1000))
    }
}

/// Renders a duration for people: `250 ms`, `20.0 s`.
pub fn display_duration(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_the_same_where_a_little_time_is_gone() {
        let text = |milliseconds| display_limit(Duration::from_millis(milliseconds));
        assert_eq!([text(19_500), text(19_020)], ["20 s", "20 s"]);
        assert_eq!([text(1000), text(999), text(950)], ["1 s", "1 s", "1 s"]);
        assert_eq!(text(210), "300 ms");
    }

    #[test]
    fn a_hook_call_ends_before_its_request_and_within_the_limit() {
        let timeout = |left| hook_call_timeout(Duration::from_millis(left));
        assert_eq!(timeout(0), Duration::ZERO);
        assert_eq!(timeout(1_000), Duration::from_millis(900));
        assert_eq!(timeout(20_000), Duration::from_millis(19_500));
        assert_eq!(timeout(600_000), HOOK_CALL_TIMEOUT);
    }
}
