//! Tracks whether virt-handler reads the guest's users. Otherwise they are polled less often.

use std::sync::Mutex;
use std::time::Duration;

use os::lock::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a read counts as recent.
const RECENT: Duration = Duration::from_secs(60);

/// When the users were last read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    last: Mutex<Option<Instant>>,
    begun: Notify,
}

impl Reads {
    /// Records a read.
    pub fn note(&self) {
        let before = lock(&self.last).replace(Instant::now());
        if !before.is_some_and(is_recent) {
            self.begun.notify_one();
        }
    }

    /// Whether there was a recent read.
    pub fn are_recent(&self) -> bool {
        lock(&self.last).is_some_and(is_recent)
    }

    /// Waits for the first read after a pause.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }
}

fn is_recent(read: Instant) -> bool {
    read.elapsed() < RECENT
}
