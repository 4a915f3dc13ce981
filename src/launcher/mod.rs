//! The domain manager: the order in which things happen to the one domain; its modules know how.
//!
//! ```text
//!   sync ──► one at a time ──► decide ──► start (a job) ─► define, start  ┐
//!                                   └───► apply ──► disks, interfaces, …  ├──► libvirt
//!   pause, shutdown, kill, … ──► admitted by phase and job ───────────────┘       │
//!   GetDomain ──► a read of libvirt, else the published snapshot ◄────────────────┤
//!   virt-handler ◄── notify ◄── document ◄── Vm ◄── report ◄── events ◄───────────┘
//! ```
//!
//! * [`vm::Vm`] owns the state. Which request runs in which phase and beside which job is a table (`vm/admission.rs`).
//! * Changes of the domain take turns; a turn ends with the change, also when the caller has given up. Reads change
//!   nothing and wait for no job. Kill is always admitted and never waits.
//! * libvirt's calls block, so each runs on a blocking thread, with a deadline below what virt-handler waits.
//! * virt-handler sees no domain until its start has returned.

mod backup;
mod decide;
mod dry_run;
mod error;
mod events;
mod guest_agent;
mod guest_clock;
mod guest_console;
mod hand_over;
mod hotplug;
mod hotplug_disks;
mod hotplug_host_devices;
mod hotplug_interfaces;
mod inspect;
mod kill;
mod libvirt_domain;
mod live_targets;
mod memory_dump;
mod metadata;
mod metadata_copy;
mod metrics;
mod migration_source;
mod migration_target;
mod network_setup;
mod observe;
mod panic_log;
mod pod_backend;
mod qemu;
mod report;
mod requests;
mod resize;
mod resources;
mod sev;
mod start;
mod statistics;
mod status_words;
mod sync;
mod sync_queue;
#[cfg(test)]
pub(crate) mod tests;
mod timeline;
mod vm;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prost::bytes::Bytes;
use tokio::sync::{broadcast, watch};

use crate::notify::Notifier;
use api::pod_paths::THAW_DEADLINE;
use hooks::Sidecars;
use libvirt::{AgentState, Connection, Event};
use pod::network::NetworkSetup;

pub use backup::BackupError;
use backup::BackupState;
pub use error::{DeviceFailure, DiskFailure, InterfaceFailure, LauncherError};
use events::EventInbox;
use guest_agent::GuestAgent;
pub use guest_agent::{AgentError, GuestCommand, GuestOutput};
use hand_over::HandOver;
pub use hand_over::HandOverError;
use hotplug::DetachRequests;
pub(crate) use libvirt_domain::CHANGE_TIMEOUT;
use libvirt_domain::LibvirtDomain;
pub use metrics::LauncherMetrics;
use metrics::Metrics;
pub use migration_source::MigrationError;
use migration_source::MigrationRecord;
use migration_target::MigrationTarget;
use pod_backend::PodBackend;
pub use qemu::Qemu;
#[cfg(test)]
pub(crate) use qemu::tests::process as process_like_qemu;
pub use sev::{LaunchSecret, SevError};
pub use statistics::AgentCommand;
use statistics::Statistics;
use sync_queue::SyncQueue;
pub use sync_queue::SyncRequest;
pub use timeline::{Step, Timeline};
use vm::Vm;
pub use vm::{Agent, JobKind, PauseReason, Phase, Refusal, Snapshot};

/// Events of libvirt's that one who waits for them may leave unread; then it misses the oldest.
const MAX_UNREAD_EVENTS: usize = 64;

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
    /// QEMU's log of the domain, for what it says about a guest's panic.
    pub qemu_log: Option<PathBuf>,
    /// Where libvirt writes the number of the domain's QEMU process.
    pub qemu_pid_file: PathBuf,
    /// `POD_NAME`, by which virt-handler means this pod; empty if it is not known.
    pub pod_name: String,
    /// `--vm-stats-collector`: `GetVMStats` is on.
    pub vm_stats_collector: bool,
    /// The steps of the start so far.
    pub timeline: Arc<Timeline>,
}

/// Manages the one domain of this process.
pub struct Launcher {
    config: LauncherConfig,
    domain: Arc<LibvirtDomain>,
    vm: Arc<Vm>,
    events: Arc<EventInbox>,
    /// Each of libvirt's events of the domain, for who waits for one.
    libvirt_events: broadcast::Sender<Event>,
    guest_agent: GuestAgent,
    syncs: SyncQueue,
    pod: Arc<dyn PodBackend>,
    sidecars: Sidecars,
    notifier: Notifier,
    statistics: Statistics,
    backup: BackupState,
    detach_requests: Mutex<DetachRequests>,
    migration_target: MigrationTarget,
    /// The last migration from here, for `launcherctl`.
    migration_record: MigrationRecord,
    /// The guest's DHCP servers live as long as the launcher.
    network: tokio::sync::Mutex<NetworkSetup>,
    hand_over_to: watch::Sender<HandOver>,
    /// The servers that the guest needs run.
    network_is_set_up: AtomicBool,
    /// The guest's clock is set once in a launcher's life.
    clock_is_set: AtomicBool,
    qemu_version: OnceLock<String>,
    metrics: Metrics,
    /// What the conversion has seen at the last start, as JSON.
    last_context: Mutex<String>,
    /// The VMI that the domain was started with; after an adoption, the first one that was applied.
    started_vmi: OnceLock<Bytes>,
}

impl Launcher {
    /// A launcher on an open connection. Events are the caller's to register, with [`Self::handle_event`]; then it calls
    /// [`Self::refresh`], by which a domain that runs already is adopted: seen earlier, what happens to it in between would
    /// be no event. Call it on a runtime.
    pub fn new(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
    ) -> Arc<Self> {
        let pod = Arc::new(pod_backend::Pod::new(config.pod.clone()));
        Self::with_pod(config, connection, sidecars, notifier, pod)
    }

    fn with_pod(
        config: LauncherConfig,
        connection: Connection,
        sidecars: Sidecars,
        notifier: Notifier,
        pod: Arc<dyn PodBackend>,
    ) -> Arc<Self> {
        let name = format!("{}_{}", config.namespace, config.name);
        let events = Arc::new(EventInbox::default());
        let launcher = Arc::new(Self {
            domain: Arc::new(LibvirtDomain::new(name, connection)),
            vm: Vm::new(&config.namespace, &config.name, &config.uid, events.clone()),
            events,
            libvirt_events: broadcast::Sender::new(MAX_UNREAD_EVENTS),
            guest_agent: GuestAgent::new(config.pod.root.path(THAW_DEADLINE)),
            syncs: SyncQueue::default(),
            pod,
            sidecars,
            notifier,
            statistics: Statistics::default(),
            backup: BackupState::default(),
            detach_requests: Mutex::default(),
            migration_target: MigrationTarget::default(),
            migration_record: MigrationRecord::default(),
            network: network_setup::of_pod(&config.pod.root).into(),
            hand_over_to: watch::Sender::new(HandOver::NotAllowed),
            network_is_set_up: AtomicBool::new(false),
            config,
            clock_is_set: AtomicBool::new(false),
            qemu_version: OnceLock::new(),
            metrics: Metrics::default(),
            last_context: Mutex::default(),
            started_vmi: OnceLock::new(),
        });
        tokio::spawn(report::run(launcher.clone()));
        tokio::spawn(guest_agent::run(launcher.clone()));
        tokio::spawn(guest_agent::show_in_time(launcher.vm.clone()));
        tokio::spawn(metadata_copy::run(launcher.clone()));
        tokio::spawn(migration_target::follow_arrival(launcher.clone()));
        tokio::spawn(guest_agent::thaw_in_time(launcher.clone()));
        tokio::spawn(backup::run(launcher.clone()));
        tokio::spawn(migration_source::follow_adopted(launcher.clone()));
        tokio::spawn(memory_dump::resume_after_lost_dumps(launcher.clone()));
        launcher
    }

    /// The name of the domain, `<namespace>_<name>`.
    #[must_use]
    pub fn domain_name(&self) -> &str {
        self.domain.name()
    }

    /// The sidecars of this pod.
    #[must_use]
    pub fn sidecars(&self) -> &Sidecars {
        &self.sidecars
    }

    /// Takes an event of libvirt's. Returns at once, so that it may be called on libvirt's own thread.
    pub fn handle_event(&self, event: &Event) {
        if event.domain().is_none_or(|name| name == self.domain_name()) {
            tracing::debug!(?event, "event from libvirt");
            match event {
                Event::DeviceRemoved { alias, .. } => lock(&self.detach_requests).removed(alias),
                Event::DeviceRemovalFailed { alias, .. } => {
                    lock(&self.detach_requests).refused(alias);
                }
                Event::AgentLifecycle {
                    state: AgentState::Connected,
                    ..
                } => self.timeline().mark(Step::Agent),
                _ => self.vm.note_event(event),
            }
            self.guest_agent.note_event(event);
            self.backup.note_event(event);
            self.events.note(event);
            // Most often nobody waits.
            let _ = self.libvirt_events.send(event.clone());
        }
    }

    /// Waits until a call of libvirt's has taken longer than it may: its daemon may hang.
    pub async fn slow_libvirt_call(&self) {
        self.domain.slow_call().await;
    }

    /// libvirt is back on another connection, for which the caller has registered events.
    pub fn reconnected(&self, connection: Connection) {
        self.domain.replace(connection);
        self.metrics.reconnected();
        tracing::info!("Reconnected to libvirt; sending the present state to virt-handler");
        self.notifier.send_again();
        self.refresh();
        self.backup.reconnected();
    }

    /// Asks virt-handler, by the domain's metadata, to shut the guest down: the pod is being deleted.
    pub fn mark_for_graceful_shutdown(&self) {
        self.vm
            .change_metadata(metadata::Metadata::mark_for_graceful_shutdown);
        self.refresh();
    }

    /// Lets no start begin any more: the pod ends. Whether one is in progress.
    pub fn refuse_starts(&self) -> bool {
        self.vm.refuse_starts()
    }

    /// Sends the present state to virt-handler, though libvirt may have sent no event of it.
    pub fn refresh(&self) {
        self.events.refresh();
    }

    /// Where the VM is, and each change of it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Snapshot> {
        self.vm.subscribe()
    }

    /// The steps of the start.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.config.timeline
    }

    /// The notifier, to wait until virt-handler has everything.
    #[must_use]
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }
}

/// Locks, also after a panic: nothing that is done under our locks can leave a value half-changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
