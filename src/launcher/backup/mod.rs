//! Backups of disks with changed block tracking: QEMU writes files (push mode), or serves a socket
//! from which a client reads (pull mode).
//!
//! ```text
//!   Start ─► job ─► metadata ─► directory ─► freeze ─► virDomainBackupBegin ─► thaw
//!                                                              │
//!   Abort ─► virDomainAbortJob ─► event: the job has ended ◄───┘
//!                                     │            ▲
//!                                 metadata      looked for when this launcher, or libvirt, is back
//! ```
//!
//! libvirt owns the backup, and continues it without the launcher. The domain's metadata identify
//! the backup. A backup is complete only if its end was seen.

mod abort;
mod checkpoint;
mod end;
pub(super) mod error;
mod export;
mod outcome;
mod resume;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::error::LauncherError;
use super::guest_agent::Freezer;
use super::libvirt_domain::LibvirtDomain;
use super::vm::Job;
use api::vmi::Vmi;
use convert::backup::{BackupRequest, BackupRequestError};
use libvirt::{Event, JobOperation, LifecycleEvent};

pub use error::BackupError;
use export::ServedBackup;
use os::lock::lock;
use outcome::JobEnd;

/// Makes backups. The metadata have the state of the running backup.
pub struct Backup {
    libvirt: Arc<LibvirtDomain>,
    freezer: Arc<Freezer>,
    root: pod::Root,
    current: Mutex<Option<Running>>,
    /// How the backup ended; only one runs at a time.
    seen_end: Mutex<Option<JobEnd>>,
    /// Serves the backup to its reader.
    served: Mutex<Option<ServedBackup>>,
    /// Signals an event that may have ended the backup.
    changed: Notify,
    /// libvirt could not tell the backup's state, so it is checked again without an event.
    recheck: AtomicBool,
    /// Signals that it is known whether a backup has started.
    start_decided: Notify,
}

struct Running {
    stage: Stage,
    /// Ends on drop.
    _job: Job,
}

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// libvirt was not called yet.
    Starting,
    /// libvirt was called and has not answered. An end that libvirt shows is this backup's.
    Called,
    /// The connection to libvirt was lost before the answer, or the call has panicked.
    Uncertain,
    /// libvirt has started it.
    Begun,
    /// libvirt or the launcher was restarted: libvirt may wait for a job that QEMU has ended.
    Adopted,
    /// libvirt waits for a job that QEMU has ended, or has a backup that nobody knows, and was asked
    /// to end it.
    Lost,
}

impl Backup {
    pub(super) fn new(
        libvirt: Arc<LibvirtDomain>,
        freezer: Arc<Freezer>,
        root: pod::Root,
    ) -> Arc<Self> {
        Arc::new(Self {
            libvirt,
            freezer,
            root,
            current: Mutex::default(),
            seen_end: Mutex::default(),
            served: Mutex::default(),
            changed: Notify::new(),
            recheck: AtomicBool::new(false),
            start_decided: Notify::new(),
        })
    }

    /// Takes the events about backups for the launcher's life.
    async fn follow(self: Arc<Self>, mut events: Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) => self.note_event(&event),
                Err(RecvError::Lagged(_)) => {
                    self.recheck.store(true, Ordering::Relaxed);
                    self.changed.notify_one();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn note_event(&self, event: &Event) {
        match event {
            Event::JobCompleted {
                operation: JobOperation::Backup,
                success,
                message,
                ..
            } => *lock(&self.seen_end) = Some(JobEnd::of_event(*success, message.clone())),
            Event::Lifecycle {
                event: LifecycleEvent::Stopped,
                ..
            } => {}
            _ => return,
        }
        self.changed.notify_one();
    }

    /// Checks the backup on a new connection to libvirt, because events may have been missed.
    pub(super) fn reconnected(&self) {
        self.changed.notify_one();
    }

    /// Whether libvirt may not report the backup's end, or could not tell its state.
    fn must_be_watched(&self) -> bool {
        matches!(
            self.stage(),
            Some(Stage::Uncertain | Stage::Adopted | Stage::Lost)
        ) || self.recheck.load(Ordering::Relaxed)
    }

    /// How the backup ended, if an event said so.
    fn take_end(&self) -> Option<JobEnd> {
        self.recheck.store(false, Ordering::Relaxed);
        lock(&self.seen_end).take()
    }

    /// Checks the backup again later, as libvirt could not tell its state. Keeps the event's `end`.
    fn recheck_later(&self, end: Option<JobEnd>) {
        self.recheck.store(true, Ordering::Relaxed);
        let mut ended = lock(&self.seen_end);
        *ended = ended.take().or(end);
    }

    /// Whether it is unknown if the backup has started.
    fn is_undecided(&self) -> bool {
        matches!(
            self.stage(),
            Some(Stage::Starting | Stage::Called | Stage::Uncertain)
        )
    }

    /// Waits until it is known whether the backup has started.
    async fn wait_until_start_decided(&self) {
        loop {
            let known = self.start_decided.notified();
            if !self.is_undecided() {
                return;
            }
            known.await;
        }
    }

    fn stage(&self) -> Option<Stage> {
        lock(&self.current).as_ref().map(|running| running.stage)
    }

    fn set_stage(&self, stage: Stage) {
        if let Some(running) = &mut *lock(&self.current) {
            running.stage = stage;
        }
        self.start_decided.notify_waiters();
    }

    fn began(&self, job: Job, stage: Stage) {
        *lock(&self.current) = Some(Running { stage, _job: job });
    }

    fn ended(&self) {
        // Dropping the job changes the VM's state, which must not happen under this lock.
        let ended = lock(&self.current).take();
        drop(ended);
        self.start_decided.notify_waiters();
        drop(lock(&self.served).take());
    }

    /// `BackupVirtualMachine`: starts or ends a backup, or lets a server read it. Refuses a VMI
    /// without changed block tracking, whatever the request.
    ///
    /// # Errors
    /// The request is refused, or libvirt's error.
    pub async fn request(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        request: Result<BackupRequest, BackupRequestError>,
    ) -> Result<(), LauncherError> {
        if !is_tracking_enabled(&vmi) {
            return Err(BackupError::NotTracked.into());
        }
        match request.map_err(BackupError::Request)? {
            BackupRequest::Start(start) => self.start(vmi, start).await,
            BackupRequest::Abort(id) => self.abort(&id).await,
            BackupRequest::Export(export) => Ok(self.export(*export)?),
        }
    }
}

/// Whether `status.changedBlockTracking.state` is `Enabled`: all disks that can be tracked are.
fn is_tracking_enabled(vmi: &Vmi) -> bool {
    let tracking = vmi.status.changed_block_tracking.as_ref();
    tracking.is_some_and(|tracking| tracking.state == "Enabled")
}
