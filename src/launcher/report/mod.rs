//! Reports the domain to virt-handler after libvirt's events and our own changes.
//!
//! ```text
//!   not reported ──first read of a started domain: ADDED──► reported ──event: MODIFIED──► reported
//!                                                              │
//!                      libvirt does not know it: repeats how it ended, if virt-handler removes it,
//!                                                then MODIFIED with deletion timestamp
//!                                                              ▼
//!                                                             gone
//! ```
//!
//! One task is the only writer of observations, so documents are sent in the order they were made.

mod panic_log;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::libvirt_domain::LibvirtDomain;
use super::reads::observe;
use super::removals::Removals;
use super::vm::events::{EventInbox, IoError, Panic, PendingEvents};
use super::vm::status_words;
use super::vm::{Phase, Snapshot};
use super::warnings::Warnings;
use crate::notify::{EventType, Notifier};
use domain::metadata::Time;
use domain::object::DomainStatus;
use domain::status::{LifeCycle, StateChangeReason};
use os::failpoints;

/// Delay before libvirt is asked again after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The retry after a conflict often meets another one: virt-handler's copy of the VMI is equally
/// old.
const REPEATED_ENDS: u32 = 2;

/// What was reported so far.
#[derive(Debug, Default)]
struct Reported {
    /// A document of an existing domain.
    domain: bool,
    /// A final panic; later ones are the same panic.
    final_panic: bool,
    /// State and reason.
    status: (LifeCycle, StateChangeReason),
}

/// Reports the domain to virt-handler.
pub(super) struct Reporter {
    pub libvirt: Arc<LibvirtDomain>,
    pub events: Arc<EventInbox>,
    pub notifier: Notifier,
    pub warnings: Warnings,
    pub removals: Arc<Removals>,
    /// QEMU's log of the domain, which tells why a guest panicked.
    pub qemu_log: Option<PathBuf>,
}

impl Reporter {
    /// Reports for the launcher's life.
    // D-sup-13 (docs/differences.md).
    pub async fn run(self) {
        let reporter = Arc::new(self);
        let mut state = reporter.libvirt.vm.subscribe();
        let reported = Arc::new(tokio::sync::Mutex::new(Reported::default()));
        loop {
            reporter.events.arrived().await;
            // Events during a start are not shown. Cannot fail: the sender lives in the VM.
            drop(state.wait_for(|vm| !vm.phase.is_starting()).await);
            let (once, reported) = (reporter.clone(), reported.clone());
            let report = tokio::spawn(async move {
                let pending = once.events.take();
                once.report(pending, &mut *reported.lock().await).await;
            });
            if report.await.is_err() {
                // It panicked, which must not end the reports to virt-handler.
                tokio::time::sleep(RETRY_DELAY).await;
                reporter.events.refresh();
            }
        }
    }

    async fn report(&self, mut pending: PendingEvents, reported: &mut Reported) {
        failpoints::hit("report.begun");
        if let Some(panic) = pending.panic.take() {
            self.report_panic(panic, reported).await;
        }
        for (disk, error) in std::mem::take(&mut pending.io_errors) {
            self.warnings.send("IOerror", io_error_text(&disk, error));
        }
        let before = self.libvirt.vm.start_boundaries();
        let observed = match observe(&self.libvirt).await {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(reason = %os::logging::chain(&error), "Could not fetch the Domain.");
                self.report_from_memory();
                tokio::time::sleep(RETRY_DELAY).await;
                return self.events.put_back(pending);
            }
        };
        if observed.is_none() {
            self.repeat_the_end().await;
        }
        if self.libvirt.vm.start_boundaries() != before {
            return self.events.put_back(pending);
        }
        let Some(observed) = observed else {
            return self.report_gone(reported);
        };
        // A start may have begun meanwhile; it reports when it has ended.
        let Some(document) = self.libvirt.vm.observe(observed) else {
            return;
        };
        log_state(&document.status, &mut reported.status);
        let added = pending.added || !std::mem::replace(&mut reported.domain, true);
        let kind = if added {
            EventType::Added
        } else {
            EventType::Modified
        };
        self.notifier.publish(&document, kind);
    }

    /// libvirt may be silent while QEMU hangs, and virt-handler has to learn when the grace period
    /// began.
    // D-vm-16 (docs/differences.md).
    fn report_from_memory(&self) {
        if let Some(document) = self.libvirt.vm.update_document() {
            self.notifier.publish(&document, EventType::Modified);
        }
    }

    /// Repeats how the domain ended, if virt-handler has removed it. virt-handler forgets a domain
    /// before it writes the VMI's final phase; if that write meets a conflict and the retry finds
    /// no domain, the VMI counts as crashed.
    // D-vm-20 (docs/differences.md).
    async fn repeat_the_end(&self) {
        let Snapshot {
            phase: Phase::Ended,
            document: Some(document),
            ..
        } = self.libvirt.vm.snapshot()
        else {
            return;
        };
        if !self.removals.have_begun() {
            return;
        }
        for count in 1..=REPEATED_ENDS {
            if !self.removals.answered(count).await {
                return;
            }
            self.notifier.publish(&document, EventType::Modified);
        }
        self.removals.answered(REPEATED_ENDS + 1).await;
    }

    /// libvirt does not know the domain. If it did before, sends the final event.
    fn report_gone(&self, reported: &mut Reported) {
        let Some(mut document) = self.libvirt.vm.domain_not_found() else {
            return;
        };
        let (status, reason) = status_words::NONE;
        document.status.status = status;
        document.status.reason = reason;
        document.meta.deletion_timestamp = Some(Time::now());
        tracing::info!("the domain is gone");
        self.notifier.publish(&document, EventType::Modified);
        reported.domain = false;
        self.libvirt.vm.gone();
    }

    async fn report_panic(&self, panic: Panic, reported: &mut Reported) {
        if reported.final_panic {
            return;
        }
        let log = self.qemu_log.clone();
        let read =
            tokio::task::spawn_blocking(move || log.and_then(|path| panic_log::last_panic(&path)));
        let info = read.await.ok().flatten();
        let (text, info) = panic_log::describe(info);
        tracing::info!(text, "Guest panic detected");
        self.libvirt.vm.change_guest_quietly(|guest| {
            guest.guest_panic_info = Some(info);
            guest.panic_count += 1;
        });
        // After a crash kernel the guest comes back and may panic again.
        reported.final_panic = panic == Panic::Final;
        self.warnings.send("GuestPanicked", text);
    }
}

/// Logs the state and the previous one, in the reference's words.
fn log_state(status: &DomainStatus, last: &mut (LifeCycle, StateChangeReason)) {
    let now = (status.status.clone(), status.reason.clone());
    let before = std::mem::replace(last, now.clone());
    let text = format!(
        "kubevirt domain status: {}({}) reason: {}({})",
        now.0, before.0, now.1, before.1
    );
    if now == before {
        tracing::debug!("{text}");
    } else {
        tracing::info!("{text}");
    }
}

fn io_error_text(disk: &str, error: IoError) -> String {
    match error {
        IoError::NoSpace => format!("VM Paused due to not enough space on volume: {disk}"),
        IoError::Other => format!("VM Paused due to IO error at the volume: {disk}"),
    }
}
