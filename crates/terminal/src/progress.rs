//! Progress on standard error while a verb waits; nothing where that is not a terminal.

use std::sync::LazyLock;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressFinish, ProgressStyle};

/// How often it is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
/// All that is shown, so that [`paused`] finds it.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Shows for what the work waits, how long already, and for how long at most.
pub async fn waiting<T>(
    for_what: &str,
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> T {
    let limit = limit.map_or_else(String::new, |limit| {
        format!(" of at most {} s", limit.as_secs())
    });
    let _shown = show(&format!("waiting for {for_what}, {{elapsed}}{limit}"), 0);
    work.await
}

/// Shows a template of indicatif's, until it is dropped.
pub fn show(template: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = SHOWN.add(ProgressBar::new(total)).with_style(style);
    let bar = bar.with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(INTERVAL);
    bar
}

/// Takes what is shown away while something else is printed.
pub fn paused<T>(print: impl FnOnce() -> T) -> T {
    SHOWN.suspend(print)
}
