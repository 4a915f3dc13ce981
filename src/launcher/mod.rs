//! The domain manager: it knows the order in which things happen to the one domain, and not how.
//!
//! ```text
//!   sync ──► one at a time ──► decide ──► create ─► define, start        ┐
//!                                   └───► apply ──► disks, grace period  ├──► libvirt
//!   pause, shutdown, kill, … ────────────────────────────────────────────┘       │
//!   GetDomain ──► observe (else what was seen last)  ◄───────────────────────────┤
//!   virt-handler ◄── notify ◄── document ◄── report ◄── pending ◄── events ◄─────┘
//! ```
//!
//! * Changes to the domain take one lock, and keep it until they are really done, also when the caller has given up.
//!   Reads take none. Kill takes none either: it must work while a start hangs.
//! * libvirt's calls block, so each runs on a blocking thread, with a deadline below what virt-handler waits.
//! * Metadata are kept in memory; the domain's XML has a copy, for a launcher that comes later.
//! * virt-handler sees no domain until its start has returned.

mod create;
mod decide;
mod disks;
mod error;
mod growth;
mod lifecycle;
mod metadata;
mod observe;
mod panics;
mod pending;
mod preview;
mod report;
mod rooms;
mod state;
mod sync;
mod targets;
#[cfg(test)]
mod tests;
mod time;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::sync::{Semaphore, watch};

use crate::cmd::Calls;
use crate::notify::Notifier;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use domain::Domain;
use domain::Text;
pub use error::{DiskFailure, InvalidVmi, LauncherError};
use hooks::Sidecars;
use libvirt::{Connection, Event, IoAction, LifecycleEvent};
use os::faults;

/// Answers to reads come within this; virt-handler waits 5 s.
const READ: Duration = Duration::from_secs(4);
/// Answers to changes come within this; virt-handler waits 20 s.
const CHANGE: Duration = Duration::from_secs(19);
/// Reads of libvirt that may hang at the same time; further ones fail at once, or answer from memory.
const READS: usize = 4;

/// What a launcher is started with.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// The pod.
    pub pod: pod::Config,
    /// `--name`.
    pub name: String,
    /// `--namespace`.
    pub namespace: String,
    /// `--uid`.
    pub uid: String,
    /// Where QEMU's log of the domain is, for what it says about a panic.
    pub qemu_log: Option<PathBuf>,
}

/// How far the domain's life has got, as far as virt-handler may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// No domain has been started.
    NotYet,
    /// The domain is there, running or not.
    There,
    /// libvirt does not know it any more, and virt-handler's queue has the final event.
    Gone,
}

/// Manages the one domain of this process.
pub struct Launcher {
    config: LauncherConfig,
    /// `<namespace>_<name>`.
    domain_name: Text,
    connection: Mutex<Connection>,
    rooms: Arc<dyn rooms::Rooms>,
    sidecars: Sidecars,
    notifier: Notifier,
    metadata: metadata::Metadata,
    /// Taken by whoever changes the domain.
    changes: Arc<tokio::sync::Mutex<()>>,
    syncs: sync::Syncs,
    /// A start is in progress: the domain is not shown.
    starting: watch::Sender<bool>,
    has_run: AtomicBool,
    paused_by_user: AtomicBool,
    /// A disk has failed since the vCPUs were let run.
    disk_failed: AtomicBool,
    presence: watch::Sender<Presence>,
    pending: pending::Inbox,
    unplugs: Mutex<disks::Unplugs>,
    guest: Mutex<report::Guest>,
    /// What was seen last.
    last: Mutex<Option<Domain>>,
    reads: Arc<Semaphore>,
    time_set: AtomicBool,
    qemu_version: OnceLock<String>,
}

impl Launcher {
    /// A launcher on an open connection, of which it takes over a domain that is already there. Events are the
    /// caller's to register, with [`Self::handle_event`]. Call it on a runtime.
    pub fn new(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
    ) -> Arc<Self> {
        let rooms = Arc::new(rooms::Pod(config.pod.clone()));
        Self::with_rooms(config, connection, sidecars, notifier, rooms)
    }

    fn with_rooms(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
        rooms: Arc<dyn rooms::Rooms>,
    ) -> Arc<Self> {
        let launcher = Arc::new(Self {
            domain_name: compact_str::format_compact!("{}_{}", config.namespace, config.name),
            metadata: metadata::Metadata::new(&config.uid),
            config,
            connection: Mutex::new(connection),
            rooms,
            sidecars,
            notifier,
            changes: Arc::default(),
            syncs: sync::Syncs::default(),
            starting: watch::Sender::new(false),
            has_run: AtomicBool::new(false),
            paused_by_user: AtomicBool::new(false),
            disk_failed: AtomicBool::new(false),
            presence: watch::Sender::new(Presence::NotYet),
            pending: pending::Inbox::default(),
            unplugs: Mutex::default(),
            guest: Mutex::default(),
            last: Mutex::default(),
            reads: Arc::new(Semaphore::new(READS)),
            time_set: AtomicBool::new(false),
            qemu_version: OnceLock::new(),
        });
        tokio::spawn(report::run(launcher.clone()));
        // A domain that runs already is taken over, and shown.
        launcher.pending.refresh();
        launcher
    }

    /// The name of the domain, `<namespace>_<name>`.
    #[must_use]
    pub fn domain_name(&self) -> &str {
        &self.domain_name
    }

    /// The sidecars of this pod.
    #[must_use]
    pub fn sidecars(&self) -> &Sidecars {
        &self.sidecars
    }

    /// Takes an event of libvirt's. Returns at once, so that it may be called on libvirt's own thread.
    pub fn handle_event(&self, event: &Event) {
        if event.domain().is_none_or(|name| name == self.domain_name) {
            tracing::debug!(?event, "event from libvirt");
            match event {
                Event::DeviceRemoved { alias, .. } => lock(&self.unplugs).removed(alias),
                Event::DeviceRemovalFailed { alias, .. } => lock(&self.unplugs).refused(alias),
                Event::IoError {
                    action: IoAction::Pause,
                    ..
                } => self.disk_failed.store(true, Ordering::Relaxed),
                Event::Lifecycle {
                    event: LifecycleEvent::Resumed,
                    ..
                } => self.disk_failed.store(false, Ordering::Relaxed),
                _ => {}
            }
            self.pending.note(event);
        }
    }

    /// libvirt is back on another connection, for which the caller has registered events: the present state is told
    /// again.
    pub fn reconnected(&self, connection: Connection) {
        *lock(&self.connection) = connection;
        tracing::info!("libvirt is back; virt-handler is told the present state");
        self.pending.refresh();
    }

    /// Asks virt-handler, by the domain's metadata, to shut the guest down: the pod is being deleted.
    pub fn mark_for_graceful_shutdown(&self) {
        self.metadata.mark_for_graceful_shutdown();
        self.pending.refresh();
    }

    /// Tells virt-handler the present state, of which libvirt has sent no event.
    pub fn look_again(&self) {
        self.pending.refresh();
    }

    /// How far the domain's life has got.
    #[must_use]
    pub fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// The notifier, to wait until virt-handler has been told.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Destroys the domain, whatever it does: the last means of a launcher that must end. No domain is no failure.
    ///
    /// # Errors
    /// libvirt's.
    pub async fn destroy(self: &Arc<Self>) -> Result<(), LauncherError> {
        self.kill().await
    }

    fn connection(&self) -> Connection {
        lock(&self.connection).clone()
    }

    /// The VMI of a request, which must be ours.
    fn our_vmi(&self, json: &[u8]) -> Result<Vmi, LauncherError> {
        let vmi = read_vmi(json).map_err(|invalid| {
            // The answer's text is known to virt-handler to the letter; what is wrong goes to the log.
            tracing::error!(reason = %invalid, "No valid VMI in the request");
            LauncherError::InvalidVmi
        })?;
        let theirs = vmi.domain_name();
        if theirs != self.domain_name {
            return Err(LauncherError::ForeignVmi {
                ours: self.domain_name.clone(),
                theirs,
            });
        }
        Ok(vmi)
    }

    fn has_run(&self) -> bool {
        self.has_run.load(Ordering::Relaxed)
    }
}

impl Calls for Launcher {
    type Error = LauncherError;

    async fn sync(
        self: &Arc<Self>,
        vmi_json: Bytes,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        Launcher::sync(self, vmi_json, options).await
    }

    async fn preview(
        self: &Arc<Self>,
        vmi_json: Bytes,
    ) -> Result<serde_json::Value, LauncherError> {
        Launcher::preview(self, vmi_json).await
    }

    async fn act(self: &Arc<Self>, action: Action, vmi_json: Bytes) -> Result<(), LauncherError> {
        let vmi = self.our_vmi(&vmi_json)?;
        let result = match action {
            Action::Pause => self.pause().await,
            Action::Unpause => self.unpause().await,
            Action::Reset => self.reset().await,
            Action::SoftReboot => self.soft_reboot(&vmi).await,
            Action::Shutdown => self.shutdown().await,
            Action::Kill => self.kill().await,
            Action::Delete => self.delete().await,
        };
        match &result {
            Ok(()) => tracing::info!("{}", words(action).0),
            Err(error) => {
                tracing::error!(reason = %os::logging::chain(error), "{}", words(action).1)
            }
        }
        result
    }

    async fn domain(self: &Arc<Self>) -> Result<Option<Domain>, LauncherError> {
        faults::point("call.begun");
        Launcher::domain(self).await
    }

    async fn qemu_version(self: &Arc<Self>) -> Result<String, LauncherError> {
        Launcher::qemu_version(self).await
    }
}

fn read_vmi(json: &[u8]) -> Result<Vmi, InvalidVmi> {
    let vmi: Vmi = serde_json::from_slice(json).map_err(InvalidVmi::Json)?;
    for (name, value) in [
        ("name", &vmi.metadata.name),
        ("namespace", &vmi.metadata.namespace),
    ] {
        if value.is_empty() {
            return Err(InvalidVmi::NoIdentity(name));
        }
    }
    Ok(vmi)
}

/// The reference's log lines for what was done, and what failed.
fn words(action: Action) -> (&'static str, &'static str) {
    match action {
        Action::Pause => ("Paused vmi", "Failed to pause vmi"),
        Action::Unpause => ("Unpaused vmi", "Failed to unpause vmi"),
        Action::Reset => ("Reset vmi", "Failed to reset vmi"),
        Action::SoftReboot => ("Soft rebooted vmi", "Failed to soft reboot vmi"),
        Action::Shutdown => ("Signaled vmi shutdown", "Failed to signal shutdown for vmi"),
        Action::Kill => ("Signaled vmi kill", "Failed to kill vmi"),
        Action::Delete => ("Signaled vmi deletion", "Failed to signal deletion for vmi"),
    }
}

/// Nothing that is done under our locks can leave a value half-changed, so a poisoned one is as good as another.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work to its end.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, LauncherError> + Send + 'static,
) -> Result<T, LauncherError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(LauncherError::Worker { what }))
}

/// Waits for `work` no longer than `limit`. What it has spawned goes on.
async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, LauncherError>>,
) -> Result<T, LauncherError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or(Err(LauncherError::Slow { what, after: limit }))
}
