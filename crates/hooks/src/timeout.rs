//! How long a hook may take. A start goes on after virt-handler has given up its call, so hooks may
//! take longer than virt-handler waits.

use std::time::Duration;

use tokio::time::Instant;

/// Limit of a call to a hook sidecar, as in KubeVirt, and of a CEL expression. A plugin's sidecar
/// has the hook's `timeout` or `PLUGIN_CALL_TIMEOUT`.
pub const HOOK_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of all hooks of a start or an arrival.
pub const HOOKS_TIMEOUT: Duration = Duration::from_secs(600);

/// Part of the time of all hooks that no call gets. A start needs it after a hook that failed and
/// is ignored.
const RESERVE: Duration = Duration::from_millis(500);

/// The deadline of a hook call that starts now. `all` is the deadline of all hooks.
pub fn hook_call_deadline(all: Instant) -> Instant {
    end_of_calls(all).min(os::time::deadline(HOOK_CALL_TIMEOUT))
}

/// The deadline of the last call: a little before the deadline `all` of all hooks.
pub fn end_of_calls(all: Instant) -> Instant {
    let left = all.saturating_duration_since(Instant::now());
    os::time::deadline(left.saturating_sub(RESERVE.min(left / 10)))
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
}
