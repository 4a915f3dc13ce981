//! How often virt-handler removes the domain.

use std::time::Duration;

use tokio::sync::watch;

/// virt-handler removes a domain that it hears of again sooner than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts requests to remove the domain.
#[derive(Default)]
pub(super) struct Removals(watch::Sender<Counts>);

#[derive(Default)]
struct Counts {
    begun: u32,
    answered: u32,
}

impl Removals {
    /// Counts a request whose work is `remove`.
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

    /// Waits until `count` requests are answered. False if they do not come in time.
    pub async fn answered(&self, count: u32) -> bool {
        let mut counts = self.0.subscribe();
        let answered = counts.wait_for(|counts| counts.answered >= count);
        tokio::time::timeout(PATIENCE, answered).await.is_ok()
    }
}
