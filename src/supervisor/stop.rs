//! From a running QEMU to the end of the pod.
//!
//! ```text
//!             signal                      grace period over
//!   running ─────────► asked to shut down ─────────────────► plug pulled ──┐ each 5 s
//!      │                       │                                  │   ▲────┘
//!      └───────────────────────┴────────── QEMU gone ─────────────┘
//!                                              │
//!              sidecars' Shutdown ─► last notification ─► daemons ─► exit
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::qemu::Qemu;

/// For libvirt to pull the plug; then QEMU is asked directly.
const KILL: Duration = Duration::from_secs(10);
/// Between one attempt to pull the plug and the next.
const AGAIN: Duration = Duration::from_secs(5);
/// For the last notification to get out.
const NOTIFY: Duration = Duration::from_secs(15);
/// The same, after the domain was destroyed once more.
const NOTIFY_AFTER_KILL: Duration = Duration::from_secs(30);

/// What the end needs of the launcher.
pub trait Guest {
    /// Why a call failed.
    type Error: Error + Send + Sync + 'static;

    /// Tells virt-handler that the guest is to shut down; virt-handler then asks the guest.
    fn mark_for_graceful_shutdown(&self) -> impl Future<Output = ()>;

    /// Asks the guest itself.
    fn shut_down(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Pulls the plug.
    fn kill(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Removes the definition.
    fn delete(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Whether virt-handler is there.
    fn has_handler(&self) -> bool;

    /// Waits until virt-handler has been told that the domain is gone.
    fn last_event_sent(&self) -> impl Future<Output = ()>;

    /// Gives hook sidecars their Shutdown call.
    fn shut_down_sidecars(&self) -> impl Future<Output = ()>;
}

/// Stays while QEMU lives, and ends it within `grace` of the first signal. `signal` waits for the next one's name.
pub async fn follow(
    qemu: &Qemu,
    guest: &impl Guest,
    mut signal: impl AsyncFnMut() -> &'static str,
    grace: Duration,
) {
    let mut pull_at = None;
    loop {
        tokio::select! {
            () = qemu.gone() => return,
            name = signal(), if pull_at.is_none() => {
                tracing::info!("Received signal {name}");
                ask(guest).await;
                pull_at = Some(os::time::deadline(grace));
            }
            () = sleep_until(pull_at.unwrap_or_else(Instant::now)), if pull_at.is_some() => {
                tracing::info!("Grace Period expired, shutting down.");
                pull_plug(qemu, guest).await;
                pull_at = Some(os::time::deadline(AGAIN));
            }
        }
    }
}

/// virt-handler sends the ACPI request when it sees the mark. Where there is none (a VM on a laptop, `STANDALONE_VMI`),
/// nobody else would, and the guest would be cut off at the end of the grace period: so the launcher asks it.
// D-sup-4 (docs/differences.md).
async fn ask(guest: &impl Guest) {
    guest.mark_for_graceful_shutdown().await;
    tracing::info!("Signaled graceful shutdown");
    if guest.has_handler() {
        return;
    }
    match timeout(KILL, guest.shut_down()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(
            reason = &error as &dyn Error,
            "The guest can't be asked to shut down"
        ),
        Err(_) => tracing::warn!("The guest can't be asked to shut down: libvirt does not answer"),
    }
}

async fn pull_plug(qemu: &Qemu, guest: &impl Guest) {
    match timeout(KILL, guest.kill()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::error!(
            reason = &error as &dyn Error,
            "Unable to stop qemu with libvirt"
        ),
        Err(_) => tracing::error!("Unable to stop qemu with libvirt: it does not answer"),
    }
    tracing::warn!("Falling back to SIGTERM");
    if let Err(error) = qemu.terminate() {
        tracing::error!(reason = %error, "Unable to kill PID {}", qemu.pid());
    }
}

/// What is left to do when QEMU is gone.
pub async fn finish(guest: &impl Guest) {
    guest.shut_down_sidecars().await;
    if !guest.has_handler() {
        // Nobody will ask for the definition to go.
        if let Ok(Err(error)) = timeout(KILL, guest.delete()).await {
            tracing::warn!(
                reason = &error as &dyn Error,
                "The domain's definition stays"
            );
        }
        return;
    }
    tracing::info!("Waiting on final notifications to be sent to virt-handler.");
    if timeout(NOTIFY, guest.last_event_sent()).await.is_ok() {
        tracing::info!("Final Delete notification sent");
        return;
    }
    tracing::info!("Timed out waiting for final delete notification. Attempting to kill domain");
    // Whatever became of QEMU: libvirt is told to let the domain go.
    let _ = timeout(KILL, guest.kill()).await;
    match timeout(NOTIFY_AFTER_KILL, guest.last_event_sent()).await {
        Ok(()) => tracing::info!("Final Delete notification sent after calling kill."),
        Err(_) => {
            tracing::info!("Timed out waiting for final delete notification after calling kill.")
        }
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
