//! From a running QEMU to the end of the pod.
//!
//! ```text
//!   starting ──signal──► killed ──► daemons ─► exit
//!
//!            SIGTERM                      grace period over
//!   running ─────────► asked to shut down ─────────────────► forced off ──┐ every 5 s
//!      │                       │                                 │   ▲────┘
//!      └───────────────────────┴────────── QEMU ended ───────────┘
//!                                              │
//!              sidecars' Shutdown ─► final notification ─► daemons ─► exit
//! ```

use std::error::Error;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep_until, timeout};

use os::process::Process;

/// Limit for libvirt to shut the guest down or force it off. QEMU gets a signal then.
const LIBVIRT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for QEMU to exit after SIGTERM if libvirt has failed. QEMU gets SIGKILL then. The kubelet
/// kills the pod 15 s after the end of the grace period.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of attempts to force the guest off.
const FORCE_OFF_INTERVAL: Duration = Duration::from_secs(5);
/// Limit for sending the final notification.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(15);
/// Limit for sending the final notification after the domain was destroyed once more.
const NOTIFY_TIMEOUT_AFTER_KILL: Duration = Duration::from_secs(30);

/// The part of the launcher that the end of the pod needs.
pub trait GuestAtPodEnd {
    type Error: Error + Send + Sync + 'static;

    /// Marks the domain's metadata for a graceful shutdown; virt-handler then asks the guest to
    /// shut down.
    fn mark_for_graceful_shutdown(&self) -> impl Future<Output = ()>;

    /// Asks the guest to shut down.
    fn shut_down(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Forces the guest off.
    fn kill(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Removes the domain's definition.
    fn delete(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Refuses new starts. Returns true if a start is in progress.
    fn refuse_starts(&self) -> bool;

    /// Waits until no start is in progress. Returns whether the domain has run.
    fn start_ended(&self) -> impl Future<Output = bool>;

    /// Whether a virt-handler exists.
    fn has_handler(&self) -> bool;

    /// Whether a virt-handler has had an event.
    fn has_told_handler(&self) -> bool;

    /// Waits until libvirt reports that the domain no longer runs.
    fn ended(&self) -> impl Future<Output = ()>;

    /// Waits until virt-handler has the domain's final event.
    fn last_event_sent(&self) -> impl Future<Output = ()>;

    /// Calls Shutdown of the hook sidecars.
    fn shut_down_sidecars(&self) -> impl Future<Output = ()>;
}

/// Ends a start in progress, together with its QEMU, which nobody would own. Waits three times,
/// each time for `limit` at most: for libvirt, for the end of a QEMU that was killed, and for what
/// became of the domain. Returns whether the domain has run. If so, [`follow`] has to handle its
/// end.
// D-vm-14 (docs/differences.md).
pub async fn end_start(
    guest: &impl GuestAtPodEnd,
    find_qemu: impl Fn() -> Option<Process>,
    limit: Duration,
) -> bool {
    if guest.refuse_starts() {
        tracing::info!("Ending the start that is in progress");
        let ended = async {
            if let Err(error) = guest.kill().await {
                tracing::warn!(reason = %os::logging::chain(&error), "libvirt does not end the start");
            }
            guest.start_ended().await
        };
        let has_run = timeout(limit, ended).await.unwrap_or(false);
        if !has_run && let Some(qemu) = find_qemu() {
            // The guest has not run, so there is nothing to save.
            tracing::warn!("Killing PID {}, which libvirt has not ended", qemu.pid());
            log_unsent(qemu.signal(Signal::KILL), &qemu);
            let _ = timeout(limit, qemu.ended()).await;
        }
    }
    timeout(limit, guest.start_ended()).await.unwrap_or(false)
}

/// Returns when QEMU dies or exits. The first SIGTERM (or other end signal) starts a graceful
/// shutdown; a second SIGTERM changes nothing. After `grace`, which is
/// `terminationGracePeriodSeconds` plus 15 s (`--grace-period-seconds`), it destroys the domain.
/// `signal` waits for the next signal's name. A guest that migrates away meanwhile goes on leaving:
/// its mark forbids nothing.
///
/// Without a readable pid file, libvirt reports the end.
// D-sup-1 (docs/differences.md).
pub async fn follow(
    qemu: Option<&Process>,
    guest: &impl GuestAtPodEnd,
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

/// Ends a guest whose migration to this pod has failed. The guest runs on the source, or nowhere.
// D-mig-24 (docs/differences.md).
pub async fn end_failed_arrival(qemu: Option<&Process>, guest: &impl GuestAtPodEnd) {
    force_off(qemu, guest).await;
    if let Some(qemu) = qemu {
        let _ = timeout(LIBVIRT_TIMEOUT, qemu.ended()).await;
    }
}

/// virt-handler sends the ACPI request when it sees the mark. Without virt-handler (a VM on a
/// laptop, `STANDALONE_VMI`) the guest would be forced off at the end of the grace period, so the
/// launcher sends it.
// D-sup-4 (docs/differences.md).
async fn ask(guest: &impl GuestAtPodEnd) {
    guest.mark_for_graceful_shutdown().await;
    tracing::info!("Signaled graceful shutdown");
    if guest.has_handler() {
        return;
    }
    match timeout(LIBVIRT_TIMEOUT, guest.shut_down()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(reason = %os::logging::chain(&error), "The guest cannot be asked to shut down")
        }
        Err(_) => tracing::warn!("The guest cannot be asked to shut down: libvirt does not answer"),
    }
}

/// Destroys the domain by libvirt, or its QEMU by SIGTERM and SIGKILL if libvirt fails.
async fn force_off(qemu: Option<&Process>, guest: &impl GuestAtPodEnd) {
    match timeout(LIBVIRT_TIMEOUT, guest.kill()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => {
            tracing::error!(reason = %os::logging::chain(&error), "Unable to stop qemu with libvirt")
        }
        Err(_) => tracing::error!("Unable to stop qemu with libvirt: it does not answer"),
    }
    let Some(qemu) = qemu else { return };
    tracing::warn!("Falling back to SIGTERM");
    log_unsent(qemu.signal(Signal::TERM), qemu);
    if timeout(TERMINATE_TIMEOUT, qemu.ended()).await.is_err() {
        tracing::warn!("Falling back to SIGKILL");
        log_unsent(qemu.signal(Signal::KILL), qemu);
    }
}

fn log_unsent(signalled: std::io::Result<()>, qemu: &Process) {
    if let Err(error) = signalled {
        tracing::error!(reason = %error, "Unable to kill PID {}", qemu.pid());
    }
}

/// Finishes the work after QEMU's exit.
pub async fn finish(guest: &impl GuestAtPodEnd) {
    guest.shut_down_sidecars().await;
    // virt-handler removes its socket when it has seen the guest's end, but keeps its connection,
    // so an earlier event also shows that it is there.
    if !guest.has_handler() && !guest.has_told_handler() {
        // Nobody else will ask for the removal of the definition.
        if let Ok(Err(error)) = timeout(LIBVIRT_TIMEOUT, guest.delete()).await {
            tracing::warn!(reason = %os::logging::chain(&error), "The domain's definition stays");
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
    // As KubeVirt: this ends a QEMU that libvirt still has, and gives virt-handler more time. The
    // definition stays, as virt-handler would take a VM that is gone for one that has failed.
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
