//! Backups of the disks whose changed blocks are tracked: by files that QEMU writes (push), or by a server on a socket from
//! which a client reads (pull).
//!
//! ```text
//!   Start ─► job ─► metadata ─► directory ─► freeze ─► virDomainBackupBegin ─► thaw
//!                                                              │
//!   Abort ─► virDomainAbortJob ─► event: the job has ended ◄───┘
//!                                     │            ▲
//!                                 metadata      looked for when this launcher, or libvirt, is back
//! ```
//!
//! libvirt has the backup, and goes on with it whatever becomes of the launcher; the domain's metadata say which one it is.
//! A backup whose end nobody has seen is never called complete.

mod abort;
mod checkpoint;
mod end;
pub(super) mod error;
mod export;
pub(super) mod outcome;
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
use super::lock::lock;
use super::vm::{Job, Vm};
use api::vmi::Vmi;
use convert::backup::{BackupRequest, BackupRequestError};
use libvirt::{Event, JobOperation, LifecycleEvent};

pub use error::BackupError;
use export::ServedBackup;
use outcome::JobEnd;

/// Makes backups. What is known of the one that runs is in the metadata.
pub struct Backup {
    libvirt: Arc<LibvirtDomain>,
    vm: Arc<Vm>,
    freezer: Arc<Freezer>,
    root: pod::Root,
    current: Mutex<Option<Running>>,
    /// How a backup has ended; there is one at a time.
    seen_end: Mutex<Option<JobEnd>>,
    /// The server for its reader.
    served: Mutex<Option<ServedBackup>>,
    /// Something has happened that a backup may have ended with.
    changed: Notify,
    /// libvirt could not say how the backup is: the next check is due without an event.
    recheck: AtomicBool,
    /// It is known whether a backup has begun.
    start_known: Notify,
}

/// A backup that runs.
struct Running {
    stage: Stage,
    /// Ends with this.
    _job: Job,
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// libvirt has not been asked yet, or has not answered.
    Starting,
    /// The connection to libvirt was lost before it has answered.
    Uncertain,
    /// libvirt has it.
    Begun,
    /// Since then libvirt or the launcher was restarted: libvirt may wait for what has ended meanwhile.
    Adopted,
    /// libvirt waits for what QEMU does not do any more; it is asked to end it.
    Lost,
}

impl Backup {
    pub(super) fn new(
        libvirt: Arc<LibvirtDomain>,
        vm: Arc<Vm>,
        freezer: Arc<Freezer>,
        root: pod::Root,
    ) -> Arc<Self> {
        Arc::new(Self {
            libvirt,
            vm,
            freezer,
            root,
            current: Mutex::default(),
            seen_end: Mutex::default(),
            served: Mutex::default(),
            changed: Notify::new(),
            recheck: AtomicBool::new(false),
            start_known: Notify::new(),
        })
    }

    /// Takes what concerns backups from the events, for as long as the launcher lives.
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

    /// libvirt is back on another connection: events may have been missed.
    pub(super) fn reconnected(&self) {
        self.changed.notify_one();
    }

    /// libvirt may not report the end, or could not say how the backup is.
    fn must_be_watched(&self) -> bool {
        matches!(
            self.stage(),
            Some(Stage::Uncertain | Stage::Adopted | Stage::Lost)
        ) || self.recheck.load(Ordering::Relaxed)
    }

    /// How a backup has ended, if there was an event of that.
    fn take_end(&self) -> Option<JobEnd> {
        self.recheck.store(false, Ordering::Relaxed);
        lock(&self.seen_end).take()
    }

    /// libvirt could not say how the backup is, whose end there may have been an event of.
    fn recheck_later(&self, end: Option<JobEnd>) {
        self.recheck.store(true, Ordering::Relaxed);
        let mut ended = lock(&self.seen_end);
        *ended = ended.take().or(end);
    }

    /// Whether it is not known yet if the backup has begun.
    fn is_undecided(&self) -> bool {
        matches!(self.stage(), Some(Stage::Starting | Stage::Uncertain))
    }

    /// Waits until it is known whether the backup has begun.
    async fn start_known(&self) {
        loop {
            let known = self.start_known.notified();
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
        self.start_known.notify_waiters();
    }

    fn began(&self, job: Job, stage: Stage) {
        *lock(&self.current) = Some(Running { stage, _job: job });
    }

    fn ended(&self) {
        // The job's end changes the VM's state, which is not to happen under this lock.
        let ended = lock(&self.current).take();
        drop(ended);
        self.start_known.notify_waiters();
        drop(lock(&self.served).take());
    }

    /// Begins a backup, ends it, or lets a server read it. A VMI without changed block tracking is refused whatever the
    /// request says.
    ///
    /// # Errors
    /// The request is refused, or libvirt's.
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

/// Whether all disks that can be tracked are.
fn is_tracking_enabled(vmi: &Vmi) -> bool {
    let tracking = vmi.status.changed_block_tracking.as_ref();
    tracking.is_some_and(|tracking| tracking.state == "Enabled")
}
