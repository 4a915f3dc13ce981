//! Telling virt-handler.
//!
//! ```text
//!   not yet shown ──first look at a started domain: ADDED──► shown ──event: MODIFIED──► shown
//!                                                              │
//!                                     libvirt does not know it: MODIFIED with deletion timestamp
//!                                                              ▼
//!                                                             gone
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::pending::{IoError, Panic, Pending};
use super::{Launcher, Presence, lock, panics, state};
use crate::notify::{EventType, K8sEvent, Severity};
use domain::Text;
use domain::metadata::Time;
use domain::object::DomainStatus;
use os::faults;

/// Pause before libvirt is asked again, after it has not answered.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of the guest besides libvirt's state. It outlives events.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// What goes into each document; state and reason are empty here.
    pub status: DomainStatus,
    /// A final panic was told; further ones are the same one.
    panic_told: bool,
    /// State and reason when virt-handler was told last.
    told: (Text, Text),
}

/// Reports for as long as the launcher lives.
pub(super) async fn run(launcher: Arc<Launcher>) {
    let mut starting = launcher.starting.subscribe();
    loop {
        launcher.pending.arrived().await;
        // What happens during a start is not shown. The sender lives in the launcher, so this does not fail.
        let _ = starting.wait_for(|starting| !starting).await;
        let reporter = launcher.clone();
        let report = tokio::spawn(async move { reporter.report(reporter.pending.take()).await });
        if report.await.is_err() {
            // It has panicked, which must not be the last that virt-handler hears.
            tokio::time::sleep(AGAIN).await;
            launcher.pending.refresh();
        }
    }
}

impl Launcher {
    async fn report(self: &Arc<Self>, mut pending: Pending) {
        faults::point("report.begun");
        if let Some(panic) = pending.panic.take() {
            self.report_panic(panic).await;
        }
        let observed = match self.observe().await {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(reason = %os::logging::chain(&error), "Could not fetch the Domain.");
                tokio::time::sleep(AGAIN).await;
                return self.pending.put_back(pending);
            }
        };
        let shown = *self.presence.borrow();
        let Some(observed) = observed else {
            if shown == Presence::There {
                self.report_gone();
            }
            return;
        };
        // A start may have begun meanwhile; it reports when it is through.
        let Some(document) = self.show(observed) else {
            return;
        };
        for (disk, error) in pending.io_errors {
            self.k8s_event("IOerror", io_error_text(&disk, error));
        }
        self.log_state(&document.status);
        let kind = if pending.added || shown != Presence::There {
            EventType::Added
        } else {
            EventType::Modified
        };
        self.notifier.publish(&document, kind);
        *lock(&self.last) = Some(document);
        self.presence.send_if_modified(|presence| {
            std::mem::replace(presence, Presence::There) != Presence::There
        });
    }

    /// In the reference's words: the new state, and the one before.
    fn log_state(&self, status: &DomainStatus) {
        let now = (status.status.clone(), status.reason.clone());
        let before = std::mem::replace(&mut lock(&self.guest).told, now.clone());
        if now == before {
            tracing::debug!(
                "kubevirt domain status: {}({}) reason: {}({})",
                now.0,
                before.0,
                now.1,
                before.1
            );
        } else {
            tracing::info!(
                "kubevirt domain status: {}({}) reason: {}({})",
                now.0,
                before.0,
                now.1,
                before.1
            );
        }
    }

    /// The final event: libvirt does not know the domain any more.
    fn report_gone(&self) {
        let mut document = self.blank_document();
        let (status, reason) = state::NONE;
        document.status.status = status.into();
        document.status.reason = reason.into();
        document.meta.deletion_timestamp = Some(Time::now());
        tracing::info!("the domain is gone");
        self.notifier.publish(&document, EventType::Modified);
        *lock(&self.last) = None;
        self.presence.send_replace(Presence::Gone);
    }

    async fn report_panic(self: &Arc<Self>, panic: Panic) {
        if lock(&self.guest).panic_told {
            return;
        }
        let log = self.config.qemu_log.clone();
        let read = tokio::task::spawn_blocking(move || log.and_then(|path| panics::last_of(&path)));
        let info = read.await.ok().flatten();
        let (text, info) = panics::told(info);
        tracing::info!(text, "Guest panic detected");
        {
            let mut guest = lock(&self.guest);
            guest.status.guest_panic_info = Some(info);
            guest.status.panic_count += 1;
            // After a crash kernel the guest comes back, and may panic anew.
            guest.panic_told = panic == Panic::Final;
        }
        self.k8s_event("GuestPanicked", text);
    }

    fn k8s_event(&self, reason: &'static str, message: String) {
        self.notifier.k8s_event(&K8sEvent {
            namespace: self.config.namespace.as_str().into(),
            name: self.config.name.as_str().into(),
            uid: self.metadata.load().uid,
            severity: Severity::Warning,
            reason,
            message,
        });
    }
}

fn io_error_text(disk: &str, error: IoError) -> String {
    match error {
        IoError::NoSpace => format!("VM Paused due to not enough space on volume: {disk}"),
        IoError::Other => format!("VM Paused due to IO error at the volume: {disk}"),
    }
}
