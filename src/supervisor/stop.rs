//! From a running QEMU to the end of the pod.
//!
//! ```text
//!   starting ──signal──► killed ──► daemons ─► exit
//!
//!             signal                      grace period over
//!   running ─────────► asked to shut down ─────────────────► forced off ──┐ every 5 s
//!      │                       │                                 │   ▲────┘
//!      └───────────────────────┴────────── QEMU ended ───────────┘
//!                                              │
//!              sidecars' Shutdown ─► final notification ─► daemons ─► exit
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use crate::launcher::Qemu;

/// For libvirt to shut the guest down or force it off; then QEMU is signalled.
const LIBVIRT_TIMEOUT: Duration = Duration::from_secs(10);
/// For QEMU to end by SIGTERM where libvirt has failed; then it is killed. The kubelet kills the pod 15 s after the end of
/// the grace period.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts to force the guest off.
const FORCE_OFF_INTERVAL: Duration = Duration::from_secs(5);
/// For the final notification to be sent.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(15);
/// The same, after the domain was destroyed once more.
const NOTIFY_TIMEOUT_AFTER_KILL: Duration = Duration::from_secs(30);

/// What the end of the pod needs of the launcher.
pub trait Guest {
    /// Why a call failed.
    type Error: Error + Send + Sync + 'static;

    /// Notes in the domain's metadata that the guest is to shut down; virt-handler then asks the guest.
    fn mark_for_graceful_shutdown(&self) -> impl Future<Output = ()>;

    /// Asks the guest itself.
    fn shut_down(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Forces the guest off.
    fn kill(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Removes the domain's definition.
    fn delete(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Lets no start begin any more. Whether one is in progress.
    fn refuse_starts(&self) -> bool;

    /// Waits until no start is in progress. Whether the domain has run.
    fn start_ended(&self) -> impl Future<Output = bool>;

    /// Whether there is a virt-handler.
    fn has_handler(&self) -> bool;

    /// Waits until libvirt reports that the domain does not run any more.
    fn ended(&self) -> impl Future<Output = ()>;

    /// Waits until virt-handler has the final event of the domain.
    fn last_event_sent(&self) -> impl Future<Output = ()>;

    /// Makes the hook sidecars' Shutdown call.
    fn shut_down_sidecars(&self) -> impl Future<Output = ()>;
}

/// Ends the start that is in progress, if there is one, with its QEMU: nobody would own it. libvirt has `limit` for that.
/// Returns whether the domain has run; then its end is [`follow`]'s.
// D-vm-14 (docs/differences.md).
pub async fn end_start(
    guest: &impl Guest,
    find_qemu: impl Fn() -> Option<Qemu>,
    limit: Duration,
) -> bool {
    if guest.refuse_starts() {
        tracing::info!("Ending the start that is in progress");
        let ended = async {
            if let Err(error) = guest.kill().await {
                tracing::warn!(
                    reason = &error as &dyn Error,
                    "libvirt does not end the start"
                );
            }
            guest.start_ended().await
        };
        let ended = timeout(limit, ended).await;
        if ended != Ok(true)
            && let Some(qemu) = find_qemu()
        {
            // The guest has not run, so there is nothing to save.
            tracing::warn!("Killing PID {}, which libvirt has not ended", qemu.pid());
            log_unsent(qemu.kill(), &qemu);
            let _ = timeout(limit, qemu.ended()).await;
        }
    }
    timeout(limit, guest.start_ended()).await.unwrap_or(false)
}

/// Returns when QEMU has ended, and ends it within `grace` of the first signal. `signal` waits for the next one's name.
///
/// Without a process to watch (its pid file cannot be read) the end is what libvirt reports.
pub async fn follow(
    qemu: Option<&Qemu>,
    guest: &impl Guest,
    mut signal: impl AsyncFnMut() -> &'static str,
    grace: Duration,
) {
    let ended = async {
        match qemu {
            Some(qemu) => qemu.ended().await,
            None => guest.ended().await,
        }
    };
    let mut ended = std::pin::pin!(ended);
    let mut force_off_at = None;
    loop {
        tokio::select! {
            () = &mut ended => return,
            name = signal(), if force_off_at.is_none() => {
                tracing::info!("Received signal {name}");
                ask(guest).await;
                force_off_at = Some(os::time::deadline(grace));
            }
            () = sleep_until(force_off_at.unwrap_or_else(Instant::now)), if force_off_at.is_some() => {
                tracing::info!("Grace Period expired, shutting down.");
                force_off(qemu, guest).await;
                force_off_at = Some(os::time::deadline(FORCE_OFF_INTERVAL));
            }
        }
    }
}

/// Ends a guest whose migration to this pod has failed: it runs on the source, or nowhere.
// D-mig-24 (docs/differences.md).
pub async fn leave(qemu: Option<&Qemu>, guest: &impl Guest) {
    force_off(qemu, guest).await;
    if let Some(qemu) = qemu {
        let _ = timeout(LIBVIRT_TIMEOUT, qemu.ended()).await;
    }
}

/// virt-handler sends the ACPI request when it sees the mark. Where there is none (a VM on a laptop, `STANDALONE_VMI`)
/// the guest would be cut off at the end of the grace period, so the launcher sends it.
// D-sup-4 (docs/differences.md).
async fn ask(guest: &impl Guest) {
    guest.mark_for_graceful_shutdown().await;
    tracing::info!("Signaled graceful shutdown");
    if guest.has_handler() {
        return;
    }
    match timeout(LIBVIRT_TIMEOUT, guest.shut_down()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(
            reason = &error as &dyn Error,
            "The guest can't be asked to shut down"
        ),
        Err(_) => tracing::warn!("The guest can't be asked to shut down: libvirt does not answer"),
    }
}

async fn force_off(qemu: Option<&Qemu>, guest: &impl Guest) {
    match timeout(LIBVIRT_TIMEOUT, guest.kill()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::error!(
            reason = &error as &dyn Error,
            "Unable to stop qemu with libvirt"
        ),
        Err(_) => tracing::error!("Unable to stop qemu with libvirt: it does not answer"),
    }
    let Some(qemu) = qemu else { return };
    tracing::warn!("Falling back to SIGTERM");
    log_unsent(qemu.terminate(), qemu);
    if timeout(TERMINATE_TIMEOUT, qemu.ended()).await.is_err() {
        tracing::warn!("Falling back to SIGKILL");
        log_unsent(qemu.kill(), qemu);
    }
}

fn log_unsent(signalled: std::io::Result<()>, qemu: &Qemu) {
    if let Err(error) = signalled {
        tracing::error!(reason = %error, "Unable to kill PID {}", qemu.pid());
    }
}

/// What is left to do when QEMU has ended.
pub async fn finish(guest: &impl Guest) {
    guest.shut_down_sidecars().await;
    if !guest.has_handler() {
        // There is nobody to ask for its removal.
        if let Ok(Err(error)) = timeout(LIBVIRT_TIMEOUT, guest.delete()).await {
            tracing::warn!(
                reason = &error as &dyn Error,
                "The domain's definition stays"
            );
        }
        return;
    }
    tracing::info!("Waiting on final notifications to be sent to virt-handler.");
    if timeout(NOTIFY_TIMEOUT, guest.last_event_sent())
        .await
        .is_ok()
    {
        tracing::info!("Final Delete notification sent");
        return;
    }
    tracing::info!("Timed out waiting for final delete notification. Attempting to kill domain");
    // Whatever became of QEMU: libvirt forgets the domain.
    let _ = timeout(LIBVIRT_TIMEOUT, guest.kill()).await;
    match timeout(NOTIFY_TIMEOUT_AFTER_KILL, guest.last_event_sent()).await {
        Ok(()) => tracing::info!("Final Delete notification sent after calling kill."),
        Err(_) => {
            tracing::info!("Timed out waiting for final delete notification after calling kill.")
        }
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
