//! Runs work that grows with a sidecar's answer on blocking threads, and waits until a deadline.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::timeout::display_limit;

#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The work takes too long. It continues, and its result is dropped.
    #[error("the work was not finished within {}", display_limit(*after))]
    TimedOut {
        /// How long the launcher waited.
        after: Duration,
    },
    #[error("internal error, see the launcher's log")]
    Internal,
}

/// Runs `work` on a blocking thread.
pub async fn until<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkError> {
    let start = Instant::now();
    match timeout_at(deadline, spawn_blocking(work)).await {
        Ok(result) => result.map_err(|_| WorkError::Internal),
        Err(_) => Err(WorkError::TimedOut {
            after: start.elapsed(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_on_another_thread_and_waited_for_until_the_deadline() {
        let here = std::thread::current().id();
        let later = os::time::deadline(Duration::from_secs(60));
        let there = until(later, || std::thread::current().id()).await;
        assert_ne!(there.unwrap(), here);

        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let blocked = until(Instant::now(), move || released.recv());
        assert!(matches!(blocked.await, Err(WorkError::TimedOut { .. })));
        drop(release);
    }
}
