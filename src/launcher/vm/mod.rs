//! The VM's state: one owner, one place that changes it, one published snapshot for all readers.
//!
//! ```text
//!   start, pause, jobs ──┐                      ┌──► admission (admit, begin): may this run now?
//!   libvirt's view ──────┼──► Vm (one mutex) ───┼──► Snapshot (watch): GetDomain, supervisor
//!   metadata ────────────┘                      └──► EventInbox: the document goes to virt-handler
//! ```
//!
//! Nothing here blocks or talks to libvirt. [`phase`] has the transitions, [`admission`] the rules.

mod admission;
mod agent;
pub(super) mod events;
mod job;
pub(super) mod metadata;
mod pause_request;
mod permit;
mod phase;
pub(super) mod status_words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::watch;

use events::{EventInbox, IoError};
use metadata::Metadata;

use domain::metadata::{KubeVirtMetadata, MigrationMetadata};
use domain::object::DomainStatus;
use domain::{Domain, DomainSpec};
use libvirt::{DomainState, Event, LifecycleEvent, PausedReason};
use os::lock::lock;

use admission::Standing;
pub use admission::{Admission, Permission, Refusal, Request};
pub use agent::Agent;
pub use job::{Job, JobKind};
use pause_request::PauseRequest;
use permit::Turns;
pub use permit::{Permit, PermitKind};
pub use phase::{PauseReason, Phase};
use phase::{PhaseInput, Seen};
pub(super) use phase::{is_leftover_of_failed_start, proves_it_has_run};

/// libvirt's view of the domain at one moment.
#[derive(Debug)]
pub struct Observed {
    /// The state, with libvirt's reason for it.
    pub state: DomainState,
    /// The live XML, or the definition of a domain that does not run.
    pub spec: DomainSpec,
}

/// The published state.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// How often it was published.
    pub generation: u64,
    pub phase: Phase,
    /// When it began.
    pub phase_since: Timestamp,
    /// The guest agent, when the domain was last read.
    pub agent: Agent,
    /// The running jobs, in the order they began.
    pub jobs: Vec<JobKind>,
    /// The last document sent to virt-handler, with which a sync is compared while the guest
    /// leaves; `None` before the first and after the last.
    pub document: Option<Arc<Domain>>,
}

impl Snapshot {
    /// Whether a running job may make libvirt block reads.
    pub fn job_blocks_reads(&self) -> bool {
        self.jobs.iter().any(|job| job.blocks_reads())
    }
}

pub struct Vm {
    namespace: String,
    name: String,
    inner: Mutex<Inner>,
    published: watch::Sender<Snapshot>,
    metadata_changes: watch::Sender<()>,
    events: Arc<EventInbox>,
    turns: Turns,
}

#[derive(Default)]
struct Inner {
    phase: Phase,
    /// The pod ends: no start may begin any more.
    is_ending: bool,
    /// How often a start has begun or ended.
    start_boundaries: u64,
    jobs: Vec<(JobKind, watch::Sender<bool>)>,
    /// A running job that libvirt has shown and that nobody follows yet.
    unfollowed: Option<JobKind>,
    pause: PauseRequest,
    /// Volumes whose disks have failed since the vCPUs were resumed.
    failed_disks: BTreeMap<String, IoError>,
    /// The domain is one that an earlier launcher has started.
    is_adopted: bool,
    metadata: Metadata,
    /// A migration has begun of which libvirt has no copy: a later launcher would not know of it.
    // D-mig-38 (docs/differences.md).
    hides_migration: bool,
    agent: Agent,
    /// Reports of the guest agent, and panics of the guest. State and reason are empty here.
    guest: DomainStatus,
    document: Option<Arc<Domain>>,
}

impl Vm {
    /// A VM of which nothing is known yet. Changes for virt-handler wake the reader of `events`.
    pub fn new(namespace: &str, name: &str, uid: &str, events: Arc<EventInbox>) -> Arc<Self> {
        let first = Snapshot {
            phase_since: Timestamp::now(),
            ..Snapshot::default()
        };
        Arc::new(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            inner: Mutex::new(Inner {
                metadata: Metadata::new(uid),
                ..Inner::default()
            }),
            published: watch::Sender::new(first),
            metadata_changes: watch::Sender::new(()),
            events,
            turns: Turns::default(),
        })
    }

    /// The current state.
    pub fn snapshot(&self) -> Snapshot {
        self.published.borrow().clone()
    }

    /// The current state and each change. A closure for `wait_for` must not call the VM: it runs
    /// under the channel's lock, which the VM takes under its own.
    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.published.subscribe()
    }

    /// Waits until libvirt has shown the domain, also one that arrives, or that there is none.
    pub async fn wait_until_shown(&self) -> Snapshot {
        // Cannot fail: the sender lives as long as the VM.
        let _ = self.subscribe().wait_for(|vm| !vm.phase.is_hidden()).await;
        self.snapshot()
    }

    /// Waits for the first read from libvirt, unless an arrival is expected. Returns the state.
    pub async fn wait_for_first_read(&self) -> Snapshot {
        let is_read = |vm: &Snapshot| vm.phase != Phase::Unknown;
        // Cannot fail: the sender lives as long as the VM.
        let _ = self.subscribe().wait_for(is_read).await;
        self.snapshot()
    }

    /// Waits for libvirt's answer where only that tells the phase: at first, and after a migration.
    pub async fn wait_until_phase_is_certain(&self) {
        let is_known = |vm: &Snapshot| match vm.phase {
            Phase::Unknown => false,
            Phase::MigratingOut => vm.jobs.contains(&JobKind::MigrationOut),
            _ => true,
        };
        // Cannot fail: the sender lives as long as the VM.
        let _ = self.subscribe().wait_for(is_known).await;
    }

    /// Whether the guest agent was connected when the domain was last read.
    pub fn has_agent(&self) -> bool {
        self.published.borrow().agent != Agent::Away
    }

    /// Reports the current state to virt-handler, even without an event from libvirt.
    pub fn refresh(&self) {
        self.events.refresh();
    }

    /// Reports the current state to virt-handler as a new domain.
    pub fn refresh_as_added(&self) {
        self.events.refresh_as_added();
    }

    /// Waits for permission to carry out a request.
    ///
    /// # Errors
    /// The request is refused.
    pub async fn permit(&self, request: Request) -> Result<Permission, Refusal> {
        let mut turn = None;
        loop {
            match (self.admit(request)?, turn.take()) {
                (Admission::AfterLook, _) => self.wait_until_phase_is_certain().await,
                (Admission::AtOnce, _) => {
                    return Ok(Permission::Granted(Permit(PermitKind::AtOnce)));
                }
                (Admission::AlreadySo, _) => return Ok(Permission::AlreadySo),
                // Asked again after the wait: the change before may have altered the state.
                (_, None) => turn = Some(self.turns.next().await),
                (Admission::InTurn, Some(permit)) => return Ok(Permission::Granted(permit)),
                (Admission::CompareOnly, _) => return Ok(Permission::CompareOnly),
            }
        }
    }

    /// Whether and how a request may run now.
    ///
    /// # Errors
    /// The refusal.
    pub fn admit(&self, request: Request) -> Result<Admission, Refusal> {
        self.with_unpublished(|inner| admission::answer(inner.standing(), request))
    }

    /// Begins a job, which ends when the guard is dropped.
    ///
    /// # Errors
    /// The phase or another job excludes it.
    pub fn begin(self: &Arc<Self>, kind: JobKind) -> Result<Job, Refusal> {
        let cancelled = self.change_and_publish(|inner| {
            admission::admit_job(inner.standing(), &inner.running_jobs(), kind)?;
            if kind == JobKind::Start {
                inner.phase = inner.phase.after(PhaseInput::StartBegan);
            }
            if kind == JobKind::MigrationOut {
                inner.phase = inner.phase.after(PhaseInput::MigrationOutBegan);
                inner.hides_migration = true;
            }
            Ok(inner.begin(kind))
        })?;
        Ok(Job {
            kind,
            vm: self.clone(),
            cancelled,
        })
    }

    /// Begins a job once the domain was read, no other job excludes it and no migration is in
    /// progress.
    ///
    /// # Errors
    /// The phase excludes it.
    pub async fn begin_after_others(self: &Arc<Self>, kind: JobKind) -> Result<Job, Refusal> {
        let is_free = |vm: &Snapshot| {
            let moves = [Phase::Unknown, Phase::MigratingIn, Phase::MigratingOut];
            !moves.contains(&vm.phase) && vm.jobs.iter().all(|job| kind.may_run_beside(*job))
        };
        loop {
            // Cannot fail: the sender lives as long as the VM.
            drop(self.subscribe().wait_for(is_free).await);
            match self.begin(kind) {
                // It began between the two.
                Err(Refusal::Job(_) | Refusal::Migrating) => {}
                begun => return begun,
            }
        }
    }

    /// Returns a job that libvirt has shown, for the caller to follow to its end. Succeeds once.
    pub fn take_adopted_job(self: &Arc<Self>, kind: JobKind) -> Option<Job> {
        self.with_unpublished(|inner| {
            inner.unfollowed.take_if(|job| *job == kind)?;
            let (_, cancel) = inner.jobs.iter().find(|(running, _)| *running == kind)?;
            Some(Job {
                kind,
                vm: self.clone(),
                cancelled: cancel.subscribe(),
            })
        })
    }

    /// Asks a job to end. Returns false if it does not run.
    pub fn cancel(&self, kind: JobKind) -> bool {
        self.with_unpublished(|inner| {
            let job = inner.jobs.iter().find(|(running, _)| *running == kind);
            job.map(|(_, cancel)| cancel.send_replace(true)).is_some()
        })
    }

    /// Refuses new starts: the pod ends. Returns true if a start is in progress.
    pub fn refuse_starts(&self) -> bool {
        self.with_unpublished(|inner| {
            inner.is_ending = true;
            inner.phase.is_starting()
        })
    }

    /// The start in progress has defined the domain.
    pub fn defined(&self) {
        self.change_and_publish(|inner| inner.phase = inner.phase.after(PhaseInput::Defined));
    }

    /// The guest is paused, or was resumed, on request.
    pub fn set_pause_requested(&self, requested: bool) {
        self.change_and_publish(|inner| inner.pause.ask(requested));
    }

    pub fn is_pause_requested(&self) -> bool {
        self.with_unpublished(|inner| inner.pause.is_made())
    }

    /// Takes an event from libvirt: reports the current state, with the facts that the state does
    /// not show. Returns at once.
    pub fn note_event(&self, event: &Event) {
        if let Some((disk, error)) = IoError::of(event) {
            self.with_unpublished(|inner| inner.failed_disks.insert(disk, error));
        }
        if let Event::Lifecycle {
            event: LifecycleEvent::Resumed,
            ..
        } = event
        {
            self.with_unpublished(|inner| inner.failed_disks.clear());
        }
        // Last: it wakes the reporter, which needs the facts above.
        self.events.note(event);
    }

    /// The disks that keep the guest paused, by volume.
    pub(super) fn failed_disks(&self) -> BTreeMap<String, IoError> {
        self.with_unpublished(|inner| inner.failed_disks.clone())
    }

    /// Whether an earlier launcher has started the domain.
    pub fn is_adopted(&self) -> bool {
        self.with_unpublished(|inner| inner.is_adopted)
    }

    /// The pod is prepared for a domain from another node, with the metadata that `change` makes.
    pub fn expect_arrival(&self, change: impl FnOnce(&mut Metadata)) {
        self.change_and_publish(|inner| {
            inner.phase = inner.phase.after(PhaseInput::ArrivalPrepared);
            // The guest may have come while the pod was prepared.
            if inner.phase == Phase::Expected {
                change(&mut inner.metadata);
            }
        });
    }

    /// The start has succeeded. virt-handler gets a document: not every libvirt driver sends an
    /// event of the start.
    pub fn started(&self, paused: bool, by_user: bool) {
        self.change_and_publish(|inner| {
            inner.pause.ask(by_user);
            inner.phase = inner.phase.after(PhaseInput::Started { paused, by_user });
        });
        self.events.refresh();
    }

    /// A sync finds that the guest ends or has ended; nothing changes if this launcher has seen it
    /// run. If that is new, virt-handler gets a document.
    pub fn mark_ended(&self) {
        let is_new = self.change_and_publish(|inner| {
            let before = inner.phase;
            inner.phase = before.after(PhaseInput::EndedUnseen);
            inner.phase != before
        });
        if is_new {
            self.events.refresh();
        }
    }

    /// Updates the state from libvirt's view. Returns what virt-handler may see of it.
    ///
    /// Each step uses those before it: adoption brings the jobs, they correct the phase, the phase
    /// ends the wait for pinning and shows the agent, and the document has all of it.
    pub fn observe(&self, observed: Observed) -> Option<Arc<Domain>> {
        self.change_and_publish(|inner| {
            inner.give_up_arrival(&observed.spec.metadata.kube_virt);
            let phase = inner.phase_of(&observed);
            if !inner.phase.has_run() && phase.has_run() {
                inner.adopt(phase, &observed);
            }
            let phase = phase.migrating_out_if(inner.runs(JobKind::MigrationOut));
            // D-mig-22 (docs/differences.md). libvirt shows any guest that was paused on its source
            // as paused by its user.
            if inner.runs(JobKind::MigrationIn) && !inner.metadata.get().disk_failed {
                inner.pause.arrive(phase);
            }
            inner.phase = phase;
            if phase.has_run()
                && phase != Phase::Paused(PauseReason::Other)
                && inner.metadata.no_longer_until_pinned()
            {
                self.metadata_changes.send_replace(());
            }
            if !phase.is_visible() {
                return None;
            }
            inner.agent = inner.agent.after(&observed.spec);
            inner.document = Some(Arc::new(self.render(inner, observed)));
            inner.document.clone()
        })
    }

    /// Makes the document of a read without changing the state.
    pub fn describe(&self, observed: Observed) -> Option<Domain> {
        self.with_unpublished(|inner| {
            let visible = inner.phase_of(&observed).is_visible();
            visible.then(|| self.render(inner, observed))
        })
    }

    /// The last document sent, updated with what has changed without libvirt: metadata, and the
    /// guest agent's reports. For a read that libvirt does not answer.
    pub fn document_from_memory(&self) -> Option<Arc<Domain>> {
        self.with_unpublished(|inner| inner.document_from_memory().map(Arc::new))
    }

    /// The document to send, if it changed since the last one.
    pub fn update_document(&self) -> Option<Arc<Domain>> {
        self.change_and_publish(|inner| {
            let document = inner.document_from_memory().map(Arc::new);
            if inner.document == document {
                return None;
            }
            inner.document.clone_from(&document);
            document
        })
    }

    /// How often a start has begun or ended. What libvirt showed of the domain before that says
    /// nothing about it afterwards.
    pub fn start_boundaries(&self) -> u64 {
        self.with_unpublished(|inner| inner.start_boundaries)
    }

    /// libvirt does not know the domain. Returns the final document, if there was one, for the
    /// caller to publish before [`Self::gone`].
    pub fn domain_not_found(&self) -> Option<Domain> {
        self.change_and_publish(|inner| {
            if inner.phase.is_visible() {
                return Some(self.blank(inner));
            }
            inner.phase = inner.phase.after(PhaseInput::NotFound);
            None
        })
    }

    /// The final event is queued.
    pub fn gone(&self) {
        self.change_and_publish(|inner| {
            inner.phase = inner.phase.after(PhaseInput::NotFound);
            inner.agent = Agent::Away;
            inner.document = None;
        });
    }

    /// Changes the metadata; if they differ, libvirt gets a copy (`metadata_copy`) and virt-handler
    /// a document. Others change them without this: [`Self::observe`], which is followed by a
    /// document, and [`Self::expect_arrival`], which does nothing once there is a domain.
    pub fn change_metadata(&self, change: impl FnOnce(&mut Metadata)) -> bool {
        let changed = self.with_unpublished(|inner| {
            let before = inner.metadata.clone();
            change(&mut inner.metadata);
            inner.metadata != before
        });
        if changed {
            self.metadata_changes.send_replace(());
            self.events.refresh();
        }
        changed
    }

    /// The migration that has begun is in libvirt's copy of the metadata, or will not be in time:
    /// virt-handler now sees it.
    pub fn show_migration(&self) {
        if self.with_unpublished(|inner| std::mem::take(&mut inner.hides_migration)) {
            self.events.refresh();
        }
    }

    /// Signals each change of the metadata. A closure for `wait_for` may call the VM only on the
    /// runtime's thread, as [`Self::observe`] signals under the VM's lock.
    pub fn metadata_changes(&self) -> watch::Receiver<()> {
        self.metadata_changes.subscribe()
    }

    pub fn metadata(&self) -> Metadata {
        self.with_unpublished(|inner| inner.metadata.clone())
    }

    pub fn guest(&self) -> DomainStatus {
        self.with_unpublished(|inner| inner.guest.clone())
    }

    /// Changes the reports of the guest agent; if they differ, virt-handler gets a document.
    /// Reports of a new agent wait for [`Self::agent_is_known`].
    pub fn report_guest(&self, change: impl FnOnce(&mut DomainStatus)) {
        let changed = self.with_unpublished(|inner| {
            let before = inner.guest.clone();
            change(&mut inner.guest);
            inner.guest != before && inner.agent != Agent::New
        });
        if changed {
            self.events.refresh();
        }
    }

    /// virt-handler now sees a new agent, which has given its first answers or is too slow.
    pub fn agent_is_known(&self) {
        if self.published.borrow().agent == Agent::New {
            self.change_and_publish(|inner| {
                if inner.agent == Agent::New {
                    inner.agent = Agent::Known;
                }
            });
            self.events.refresh();
        }
    }

    /// Changes what was learned about the guest. The caller sends the document.
    pub fn change_guest_quietly(&self, change: impl FnOnce(&mut DomainStatus)) {
        self.with_unpublished(|inner| change(&mut inner.guest));
    }

    fn render(&self, inner: &Inner, observed: Observed) -> Domain {
        let (status, reason) = status_words::words(inner.explained(observed.state));
        let mut document = self.blank(inner);
        let metadata = std::mem::take(&mut document.spec.metadata);
        let hides_agent = inner.hides_agent(&observed.spec);
        document.spec = observed.spec;
        document.spec.metadata = metadata;
        if hides_agent {
            agent::hide(&mut document.spec);
        }
        document.status.status = status;
        document.status.reason = reason;
        document.fill_required_fields();
        document
    }

    /// A document with everything known without libvirt.
    fn blank(&self, inner: &Inner) -> Domain {
        let metadata = inner.shown_metadata();
        let mut document = Domain::new(&self.namespace, &self.name, &metadata.uid);
        document.spec.metadata.kube_virt = metadata;
        document.status = inner.guest.clone();
        document
    }

    /// Reads the state, or changes what no snapshot has.
    fn with_unpublished<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut lock(&self.inner))
    }

    /// Changes the state, and publishes changes in their order.
    fn change_and_publish<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        self.with_unpublished(|inner| {
            let result = work(inner);
            self.published.send_modify(|snapshot| {
                snapshot.generation += 1;
                if snapshot.phase.is_starting() != inner.phase.is_starting() {
                    inner.start_boundaries += 1;
                }
                if snapshot.phase != inner.phase {
                    snapshot.phase_since = Timestamp::now();
                }
                snapshot.phase = inner.phase;
                snapshot.agent = inner.agent;
                snapshot.jobs = inner.running_jobs();
                snapshot.document.clone_from(&inner.document);
            });
            result
        })
    }
}

impl Inner {
    fn standing(&self) -> Standing {
        Standing {
            phase: self.phase,
            migrates: self.runs(JobKind::MigrationIn) || self.runs(JobKind::MigrationOut),
            is_ending: self.is_ending,
        }
    }

    /// The file of an arrival that is over may have stayed: libvirt's copy of the metadata has its
    /// end, or a later migration.
    fn give_up_arrival(&mut self, copy: &KubeVirtMetadata) {
        let known = self.metadata.migration().map(|it| &it.uid);
        let is_over = |it: &MigrationMetadata| it.end_timestamp.is_some() || known != Some(&it.uid);
        if self.phase == Phase::Expected && copy.migration.as_ref().is_some_and(is_over) {
            self.phase = Phase::Unknown;
        }
    }

    /// Takes over a domain that this launcher has not started: it has arrived, or runs since before
    /// this launcher's start.
    fn adopt(&mut self, phase: Phase, observed: &Observed) {
        if self.phase == Phase::Expected {
            return self.adopt_job(JobKind::MigrationIn);
        }
        tracing::info!("Adopting the domain that is already there");
        self.is_adopted = true;
        self.metadata.adopt(&observed.spec.metadata.kube_virt);
        self.pause.adopt(phase);
        // Only the source's XML has an unfinished migration; the document for the target has none.
        if self.metadata.unfinished_migration().is_some() {
            self.adopt_job(JobKind::MigrationOut);
        } else if phase == Phase::MigratingIn {
            // An earlier launcher prepared this pod.
            self.adopt_job(JobKind::MigrationIn);
        }
    }

    /// Begins a job. The receiver tells when it is cancelled.
    fn begin(&mut self, kind: JobKind) -> watch::Receiver<bool> {
        let (cancel, cancelled) = watch::channel(false);
        self.jobs.push((kind, cancel));
        cancelled
    }

    /// libvirt runs a job that this launcher has not begun.
    fn adopt_job(&mut self, kind: JobKind) {
        drop(self.begin(kind));
        self.unfollowed = Some(kind);
    }

    fn running_jobs(&self) -> Vec<JobKind> {
        self.jobs.iter().map(|(kind, _)| *kind).collect()
    }

    fn runs(&self, job: JobKind) -> bool {
        self.jobs.iter().any(|(kind, _)| *kind == job)
    }

    /// Whether virt-handler must not see the agent yet. An agent that it has already seen, under
    /// this launcher or an earlier one, stays visible.
    // D-agent-13 (docs/differences.md).
    fn hides_agent(&self, seen: &DomainSpec) -> bool {
        let last = self.document.as_ref();
        let was_hidden = last.is_some_and(|last| !last.spec.devices.has_agent());
        was_hidden && self.agent.after(seen) == Agent::New
    }

    /// The metadata that virt-handler may see.
    fn shown_metadata(&self) -> KubeVirtMetadata {
        let mut shown = self.metadata.get().clone();
        shown.migration.take_if(|_| self.hides_migration);
        shown
    }

    /// See [`Vm::document_from_memory`].
    fn document_from_memory(&self) -> Option<Domain> {
        let mut document = Domain::clone(self.document.as_ref()?);
        document.spec.metadata.kube_virt = self.shown_metadata();
        document.status = DomainStatus {
            status: document.status.status,
            reason: document.status.reason,
            ..self.guest.clone()
        };
        Some(document)
    }

    /// The phase that an observation leads to.
    fn phase_of(&self, observed: &Observed) -> Phase {
        // The domain was paused before this launcher came: libvirt knows the reason.
        let adopts_pause = !self.phase.has_run()
            && observed.state == DomainState::Paused(PausedReason::User)
            && !observed.spec.metadata.kube_virt.paused_until_pinned;
        self.phase.after(PhaseInput::Seen(Seen {
            state: self.explained(observed.state),
            pause_requested: self.pause.is_made() || adopts_pause,
            arriving: self.phase == Phase::Expected || self.runs(JobKind::MigrationIn),
            migrating_out: self.runs(JobKind::MigrationOut),
        }))
    }

    /// Adds a pause reason that libvirt has missed: QEMU reports a disk's errors at most once per
    /// second, and libvirt then leaves the reason unknown.
    // D-disk-18 (docs/differences.md).
    fn explained(&self, state: DomainState) -> DomainState {
        match state {
            DomainState::Paused(PausedReason::Unknown) if !self.failed_disks.is_empty() => {
                DomainState::Paused(PausedReason::IoError)
            }
            state => state,
        }
    }
}

#[cfg(test)]
mod tests;
