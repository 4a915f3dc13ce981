//! Keeps libvirt's events until they are reported to virt-handler. Memory is constant: an event
//! leaves only a flag, and the few facts that the domain's state does not show afterwards.

use std::collections::BTreeMap;
use std::sync::Mutex;

use domain::alias::Alias;
use libvirt::{CrashedDetail, Event, IoAction, LifecycleEvent, StartedDetail};
use os::lock::lock;
use tokio::sync::Notify;

/// The events since the last report to virt-handler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PendingEvents {
    /// The domain has arrived (`VIR_DOMAIN_EVENT_STARTED_MIGRATED`), or a backup has ended.
    pub added: bool,
    /// The guest has panicked.
    pub panic: Option<Panic>,
    /// Disks whose errors paused the domain.
    pub io_errors: BTreeMap<String, IoError>,
    /// Whether to report the current state in any case.
    changed: bool,
}

/// What happens after a guest's panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Panic {
    /// No crash kernel runs after the panic.
    Final,
    /// The guest saves a dump and reboots, and may panic again.
    CrashKernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoError {
    /// No space is left for the disk's image (ENOSPC).
    NoSpace,
    /// Any other I/O error.
    Other,
}

impl IoError {
    /// The volume whose disk has paused the guest, or its file if it has no name; and why.
    pub fn of(event: &Event) -> Option<(String, Self)> {
        let Event::IoError {
            alias,
            path,
            action: IoAction::Pause,
            reason,
            ..
        } = event
        else {
            return None;
        };
        let name = Alias::from_qualified(alias).name;
        let disk = if name.is_empty() { path } else { &name };
        let error = if reason == "enospc" {
            Self::NoSpace
        } else {
            Self::Other
        };
        Some((disk.clone(), error))
    }
}

impl PendingEvents {
    /// Each event makes a report, also `MemoryDeviceSize` and `BalloonChange`. Noted besides is
    /// what the state does not show later: I/O error (`VIR_DOMAIN_EVENT_ID_IO_ERROR`), panic.
    fn note(&mut self, event: &Event) {
        self.changed = true;
        match event {
            Event::Lifecycle {
                event: LifecycleEvent::Started(StartedDetail::Migrated),
                ..
            } => self.added = true,
            Event::Lifecycle {
                event: LifecycleEvent::Crashed(detail),
                ..
            } => {
                self.panic = Some(match detail {
                    CrashedDetail::Crashloaded => Panic::CrashKernel,
                    CrashedDetail::Panicked | CrashedDetail::Other(_) => Panic::Final,
                });
            }
            event => self.io_errors.extend(IoError::of(event)),
        }
    }

    /// Takes from `earlier` what the domain's document shows; the rest has been reported.
    fn merge(&mut self, earlier: Self) {
        self.changed |= earlier.changed;
        self.added |= earlier.added;
    }
}

/// virt-handler ignores a migration's progress; the migration's own job follows it.
fn is_reported(event: &Event) -> bool {
    !matches!(
        event,
        Event::MigrationIteration { .. } | Event::Closed { .. }
    )
}

/// Takes events from libvirt's thread for the reporting task.
#[derive(Debug, Default)]
pub struct EventInbox {
    pending: Mutex<PendingEvents>,
    arrived: Notify,
}

impl EventInbox {
    /// Adds an event; returns at once.
    pub fn note(&self, event: &Event) {
        if is_reported(event) {
            lock(&self.pending).note(event);
            self.arrived.notify_one();
        }
    }

    /// Requests a report of the current state.
    pub fn refresh(&self) {
        lock(&self.pending).changed = true;
        self.arrived.notify_one();
    }

    /// Requests a report of the current state as a new domain.
    pub fn refresh_as_added(&self) {
        lock(&self.pending).added = true;
        self.refresh();
    }

    /// Puts events back that could not be reported.
    pub fn put_back(&self, earlier: PendingEvents) {
        lock(&self.pending).merge(earlier);
        self.arrived.notify_one();
    }

    /// Waits until there is something to report.
    pub async fn arrived(&self) {
        loop {
            let arrived = self.arrived.notified();
            if lock(&self.pending).changed {
                return;
            }
            arrived.await;
        }
    }

    /// Takes all pending events.
    pub fn take(&self) -> PendingEvents {
        std::mem::take(&mut *lock(&self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::CloseReason;

    fn domain() -> String {
        "ns1_vm1".into()
    }

    fn lifecycle(event: LifecycleEvent) -> Event {
        Event::Lifecycle {
            domain: domain(),
            event,
        }
    }

    fn io_error(alias: &str, action: IoAction, reason: &str) -> Event {
        Event::IoError {
            domain: domain(),
            path: "/img".into(),
            alias: alias.into(),
            action,
            reason: reason.into(),
        }
    }

    fn after(events: &[Event]) -> PendingEvents {
        let inbox = EventInbox::default();
        events.iter().for_each(|event| inbox.note(event));
        inbox.take()
    }

    #[test]
    fn a_thousand_events_are_one_change() {
        let events = vec![lifecycle(LifecycleEvent::Resumed); 1000];
        assert_eq!(
            after(&events),
            PendingEvents {
                changed: true,
                ..PendingEvents::default()
            }
        );
    }

    #[test]
    fn a_domain_that_comes_by_migration_is_added() {
        assert!(after(&[lifecycle(LifecycleEvent::Started(StartedDetail::Migrated))]).added);
        assert!(!after(&[lifecycle(LifecycleEvent::Started(StartedDetail::Booted))]).added);
        // A definition that was not started is not shown.
        assert!(!after(&[lifecycle(LifecycleEvent::Defined)]).added);
    }

    #[test]
    fn panics_with_and_without_a_crash_kernel_differ() {
        assert_eq!(
            after(&[lifecycle(LifecycleEvent::Crashed(CrashedDetail::Panicked))]).panic,
            Some(Panic::Final)
        );
        assert_eq!(
            after(&[lifecycle(LifecycleEvent::Crashed(
                CrashedDetail::Crashloaded
            ))])
            .panic,
            Some(Panic::CrashKernel)
        );
    }

    #[test]
    fn only_errors_that_pause_the_domain_count_once_for_each_disk() {
        let pending = after(&[
            io_error("ua-a", IoAction::Pause, ""),
            io_error("ua-a", IoAction::Pause, "enospc"),
            io_error("virtio-disk1", IoAction::Pause, ""),
            io_error("", IoAction::Pause, ""),
            io_error("ua-b", IoAction::Report, "enospc"),
        ]);
        let expected = [
            ("/img", IoError::Other),
            ("a", IoError::NoSpace),
            ("virtio-disk1", IoError::Other),
        ];
        assert_eq!(
            pending.io_errors,
            expected.map(|(disk, error)| (disk.into(), error)).into()
        );
    }

    #[test]
    fn events_that_change_nothing_wake_nobody() {
        let events = [
            Event::MigrationIteration {
                domain: domain(),
                iteration: 1,
            },
            Event::Closed {
                reason: CloseReason::Eof,
            },
        ];
        assert_eq!(after(&events), PendingEvents::default());
    }

    #[test]
    fn what_could_not_be_reported_is_kept() {
        let inbox = EventInbox::default();
        inbox.note(&lifecycle(LifecycleEvent::Started(StartedDetail::Migrated)));
        let earlier = inbox.take();
        inbox.note(&io_error("ua-a", IoAction::Pause, "enospc"));
        inbox.put_back(earlier);
        let all = inbox.take();
        assert!(all.added && all.changed);
        assert_eq!(all.io_errors["a"], IoError::NoSpace);
    }
}
