//! Counts how often virt-handler removes the domain.

use std::time::Duration;

use tokio::sync::watch;

/// If virt-handler removes a domain after hearing of it again, it does so sooner than this.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Removals(watch::Sender<Counts>);

#[derive(Default)]
struct Counts {
    begun: u32,
    answered: u32,
}

impl Removals {
    /// Runs `remove` and counts it as a request.
    pub async fn count<T>(&self, remove: impl Future<Output = T>) -> T {
        let increase = |count: &mut u32| *count = count.saturating_add(1);
        self.0.send_modify(|counts| increase(&mut counts.begun));
        let removed = remove.await;
        self.0.send_modify(|counts| increase(&mut counts.answered));
        removed
    }

    pub fn have_begun(&self) -> bool {
        self.0.borrow().begun > 0
    }

    /// Waits until `count` requests are answered. Returns false if they do not come in time.
    pub async fn answered(&self, count: u32) -> bool {
        let mut counts = self.0.subscribe();
        let answered = counts.wait_for(|counts| counts.answered >= count);
        tokio::time::timeout(PATIENCE, answered).await.is_ok()
    }
}
