//! Whether anybody reads what the agent knows. What nobody reads is asked for less often.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::launcher::lock::lock;

/// A read is recent for this long.
const RECENT: Duration = Duration::from_secs(60);

/// When the users were read last.
#[derive(Debug, Default)]
pub(super) struct Reads {
    last: Mutex<Option<Instant>>,
    begun: Notify,
}

impl Reads {
    /// Somebody reads.
    pub fn note(&self) {
        let before = lock(&self.last).replace(Instant::now());
        if !before.is_some_and(is_recent) {
            self.begun.notify_one();
        }
    }

    /// Whether somebody has read lately.
    pub fn are_recent(&self) -> bool {
        lock(&self.last).is_some_and(is_recent)
    }

    /// Waits for a read after a time without.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }
}

fn is_recent(read: Instant) -> bool {
    read.elapsed() < RECENT
}
