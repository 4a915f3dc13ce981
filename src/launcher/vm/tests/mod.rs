//! Tests of [`Vm`]: its snapshots, its permits, and the end of a job's guard.

mod migration_model;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use api::vmi::Vmi;
use domain::status::{LifeCycle, StateChangeReason};
use libvirt::{IoAction, RunningReason, ShutdownReason, ShutoffReason};

pub fn vm() -> Arc<Vm> {
    Vm::new("ns1", "vm1", "u-1", Arc::default())
}

pub const RUNNING: DomainState = DomainState::Running(RunningReason::Booted);

pub fn seen(state: DomainState) -> Observed {
    Observed {
        state,
        spec: DomainSpec::default(),
    }
}

fn running() -> Arc<Vm> {
    let vm = vm();
    drop(vm.observe(seen(RUNNING)).unwrap());
    vm
}

#[test]
fn a_start_ends_as_absent_or_running_whatever_becomes_of_its_job() {
    let vm = vm();
    let start = vm.begin(JobKind::Start).unwrap();
    assert_eq!(vm.snapshot().phase, Phase::Preparing);
    vm.defined();
    assert_eq!(vm.snapshot().phase, Phase::Starting);
    assert!(vm.observe(seen(RUNNING)).is_none(), "a start is not shown");
    drop(start);
    assert_eq!(vm.snapshot().phase, Phase::StartFailed);

    let start = vm.begin(JobKind::Start).unwrap();
    vm.started(false, false);
    drop(start);
    assert_eq!(vm.snapshot().phase, Phase::Running);
    assert!(vm.snapshot().jobs.is_empty());
}

/// Otherwise a later launcher that adopts the domain would take it for a migrating one.
#[test]
fn the_end_of_a_migration_is_written_to_the_domain() {
    let vm = running();
    let migration = vm.begin(JobKind::MigrationOut).unwrap();
    let copy = || vm.admit(Request::CopyMetadata);
    assert_eq!(copy(), Err(Refusal::Migrating));
    drop(migration);
    assert_eq!(vm.snapshot().phase, Phase::MigratingOut);
    assert_eq!(copy(), Ok(Admission::AtOnce));
}

/// Whoever sees the end, in `launcherctl` or in a document, may act on it at once.
#[tokio::test]
async fn a_request_at_the_end_of_a_migration_waits_for_where_the_guest_is() {
    let vm = running();
    drop(vm.begin(JobKind::MigrationOut).unwrap());
    let requests = [Request::Unpause, Request::Reset, Request::Sync];
    let mut waiting: Vec<_> = requests.map(|it| Box::pin(vm.permit(it))).into();
    let mut context = Context::from_waker(Waker::noop());
    for request in &mut waiting {
        assert!(request.as_mut().poll(&mut context).is_pending());
    }
    drop(vm.observe(seen(RUNNING)));
    for request in waiting {
        assert!(matches!(request.await, Ok(Permission::Granted(_))));
    }
    assert!(vm.begin(JobKind::MigrationOut).is_ok());
}

#[test]
// D-vm-16 (docs/differences.md).
fn metadata_are_shown_while_libvirt_is_silent_and_sent_once() {
    let vm = running();
    assert_eq!(vm.update_document(), None, "nothing has changed");
    assert!(vm.change_metadata(Metadata::shutdown_requested));
    let has_clock = |document: &Domain| {
        let grace_period = &document.spec.metadata.kube_virt.grace_period;
        let clock = grace_period
            .as_ref()
            .map(|it| it.deletion_timestamp.is_some());
        clock.unwrap_or_default()
    };
    let document = vm.document_from_memory().unwrap();
    assert!(has_clock(&document) && document.status.status == LifeCycle::Running);
    assert!(vm.update_document().is_some_and(|sent| sent == document));
    assert_eq!(vm.update_document(), None, "sent already");
    assert!(vm.snapshot().document.is_some_and(|last| has_clock(&last)));
    vm.gone();
    assert_eq!(vm.document_from_memory(), None);
}

#[test]
fn one_job_at_a_time() {
    let vm = running();
    let dump = vm.begin(JobKind::MemoryDump).unwrap();
    let refused = vm.begin(JobKind::Backup).err();
    assert_eq!(refused, Some(Refusal::Job(JobKind::MemoryDump)));
    assert_eq!(vm.snapshot().jobs, [JobKind::MemoryDump]);
    drop(dump);
    let backup = vm.begin(JobKind::Backup).unwrap();
    let hotplug = vm.begin(JobKind::HostDeviceHotplug).unwrap();
    assert_eq!(
        vm.snapshot().jobs,
        [JobKind::Backup, JobKind::HostDeviceHotplug]
    );
    drop((backup, hotplug));
}

#[test]
fn a_domain_that_this_launcher_migrates_is_leaving_until_the_job_ends() {
    let vm = running();
    let migration = vm.begin(JobKind::MigrationOut).unwrap();
    drop(vm.observe(seen(RUNNING)));
    assert_eq!(vm.snapshot().phase, Phase::MigratingOut);
    assert_eq!(vm.admit(Request::Sync), Ok(Admission::CompareOnly));
    assert_eq!(vm.admit(Request::Delete), Err(Refusal::Migrating));
    assert_eq!(vm.admit(Request::Kill), Ok(Admission::AtOnce));
    drop(migration);
    drop(vm.observe(seen(RUNNING)));
    assert_eq!(vm.snapshot().phase, Phase::Running);
}

#[test]
fn a_read_changes_nothing() {
    let vm = vm();
    let before = vm.snapshot().generation;
    assert!(vm.describe(seen(RUNNING)).is_some());
    assert_eq!(
        (vm.snapshot().generation, vm.snapshot().phase),
        (before, Phase::Unknown)
    );
}

#[test]
fn a_pause_that_was_asked_for_outlives_what_was_seen_before_it() {
    let vm = running();
    vm.set_pause_requested(true);
    // Read a moment before the vCPUs stopped.
    drop(vm.observe(seen(RUNNING)));
    drop(vm.observe(seen(DomainState::Paused(PausedReason::User))));
    assert_eq!(vm.snapshot().phase, Phase::Paused(PauseReason::User));
}

#[test]
fn an_adopted_pause_stays_the_users() {
    let vm = vm();
    for _ in 0..2 {
        drop(vm.observe(seen(DomainState::Paused(PausedReason::User))));
        assert_eq!(vm.snapshot().phase, Phase::Paused(PauseReason::User));
    }
}

/// What libvirt has of a guest that its start has paused until the emulator is pinned.
fn paused_until_pinned() -> Observed {
    let vmi = json!({"spec": {"domain": {"cpu": {"dedicatedCpuPlacement": true, "isolateEmulatorThread": true}}}});
    let mut metadata = Metadata::new("u-1");
    metadata.begin(&serde_json::from_value(vmi).unwrap());
    let mut observed = seen(DomainState::Paused(PausedReason::User));
    observed.spec.metadata.kube_virt = metadata.get().clone();
    observed
}

#[test]
// D-sup-16 (docs/differences.md).
fn an_adopted_guest_that_waits_for_its_pinned_emulator_is_not_paused_by_the_user() {
    let vm = vm();
    for _ in 0..2 {
        drop(vm.observe(paused_until_pinned()));
        assert_eq!(vm.snapshot().phase, Phase::Paused(PauseReason::Other));
        assert!(!vm.is_pause_requested());
    }
    // A sync has resumed it. The next pause is the user's, also for another launcher.
    let copies = vm.metadata_changes();
    drop(vm.observe(seen(RUNNING)));
    assert!(copies.has_changed().unwrap());
    let mut observed = seen(DomainState::Paused(PausedReason::User));
    observed.spec.metadata.kube_virt = vm.metadata().get().clone();
    let next = self::vm();
    drop(next.observe(observed));
    assert!(next.is_pause_requested());
}

#[test]
fn a_disk_that_fails_again_right_after_a_resume_is_an_io_error() {
    let vm = running();
    vm.note_event(&Event::IoError {
        domain: "ns1_vm1".into(),
        path: String::new(),
        alias: "ua-data".into(),
        action: IoAction::Pause,
        reason: String::new(),
    });
    let document = vm
        .observe(seen(DomainState::Paused(PausedReason::Unknown)))
        .unwrap();
    assert_eq!(document.status.reason, StateChangeReason::IoError);
    assert_eq!(vm.snapshot().phase, Phase::Paused(PauseReason::IoError));
    assert_eq!(vm.failed_disks()["data"], IoError::Other);
    vm.note_event(&Event::Lifecycle {
        domain: "ns1_vm1".into(),
        event: LifecycleEvent::Resumed,
    });
    assert!(vm.failed_disks().is_empty());
}

#[test]
fn the_end_is_reported_once() {
    let vm = running();
    assert!(vm.domain_not_found().is_some());
    vm.gone();
    assert!(vm.domain_not_found().is_none());
    assert_eq!(
        (vm.snapshot().phase, vm.snapshot().document.is_none()),
        (Phase::Gone, true)
    );
}

#[tokio::test]
async fn a_job_that_is_asked_to_end_hears_it_even_if_it_was_not_waiting() {
    let vm = running();
    assert!(!vm.cancel(JobKind::MemoryDump));
    let dump = vm.begin(JobKind::MemoryDump).unwrap();
    assert!(vm.cancel(JobKind::MemoryDump));
    dump.cancelled().await;
}

#[test]
fn what_is_left_of_a_failed_start_is_not_taken_over() {
    let started = vm();
    drop(started.begin(JobKind::Start).unwrap());
    for state in [
        DomainState::Paused(PausedReason::StartingUp),
        DomainState::Shutdown(ShutdownReason::Unknown),
        DomainState::Shutoff(ShutoffReason::Daemon),
    ] {
        assert!(started.observe(seen(state)).is_none());
        assert_eq!(started.snapshot().phase, Phase::StartFailed);
        // An earlier launcher may have started the domain, so its end has to be reported.
        let adopting = vm();
        adopting.observe(seen(state));
        let is_absent = adopting.snapshot().phase == Phase::Absent;
        assert_eq!(is_absent, matches!(state, DomainState::Shutoff(_)));
    }
    drop(started.begin(JobKind::Start).unwrap());
    started.observe(seen(RUNNING));
    assert_eq!(started.snapshot().phase, Phase::Running);
}

#[test]
fn a_domain_whose_migration_an_earlier_launcher_has_begun_is_leaving() {
    for state in [
        RUNNING,
        DomainState::Paused(PausedReason::Migration),
        DomainState::Paused(PausedReason::User),
    ] {
        let mut earlier = Metadata::new("u-1");
        earlier.migration_out_began("m-1");
        let mut observed = seen(state);
        observed.spec.metadata.kube_virt = earlier.get().clone();
        let vm = vm();
        drop(vm.observe(observed));
        assert_eq!(vm.snapshot().phase, Phase::MigratingOut);
        assert_eq!(vm.snapshot().jobs, [JobKind::MigrationOut]);
        let job = vm.take_adopted_job(JobKind::MigrationOut).unwrap();
        assert_eq!(vm.metadata().unfinished_migration().unwrap(), "m-1");
        assert!(vm.take_adopted_job(JobKind::MigrationOut).is_none());
        drop(vm.observe(seen(state)));
        assert_eq!(vm.snapshot().phase, Phase::MigratingOut);
        drop(job);
        drop(vm.observe(seen(RUNNING)));
        assert_eq!(vm.snapshot().phase, Phase::Running);
    }
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_migration_is_not_shown_before_a_later_launcher_would_know_of_it() {
    let vm = running();
    let _job = vm.begin(JobKind::MigrationOut).unwrap();
    vm.change_metadata(|metadata| metadata.migration_out_began("m-1"));
    let shown = || {
        let read = vm.describe(seen(RUNNING)).unwrap();
        let kept = vm.document_from_memory().unwrap();
        let sent = vm.observe(seen(RUNNING)).unwrap();
        let documents = [&read, &*kept, &*sent];
        documents.map(|it| it.spec.metadata.kube_virt.migration.is_some())
    };
    assert_eq!(shown(), [false; 3]);
    assert!(vm.metadata().is_migrating(), "it can be aborted");
    drop(vm.events.take());
    vm.show_migration();
    assert_ne!(vm.events.take(), <_>::default());
    assert_eq!(shown(), [true; 3]);
    vm.show_migration();
    assert_eq!(vm.events.take(), <_>::default(), "once");
}

#[test]
// D-sup-16 (docs/differences.md).
fn an_arrival_that_libvirt_knows_to_be_over_is_not_followed_again() {
    let arriving = |uid: &str| {
        let mut metadata = Metadata::new("u-1");
        metadata.migration_in_began(&Vmi::default(), uid);
        metadata
    };
    let jobs = |copy: &Metadata| {
        let vm = vm();
        vm.expect_arrival(|metadata| metadata.adopt(arriving("m-1").get()));
        let mut observed = seen(DomainState::Paused(PausedReason::Unknown));
        observed.spec.metadata.kube_virt = copy.get().clone();
        drop(vm.observe(observed));
        (
            vm.snapshot().jobs,
            vm.metadata().migration().unwrap().uid.clone(),
        )
    };
    assert_eq!(
        jobs(&Metadata::new("u-1")),
        (vec![JobKind::MigrationIn], "m-1".into())
    );
    let mut ended = arriving("m-1");
    ended.migration_in_ended();
    assert_eq!(jobs(&ended), (vec![], "m-1".into()));
    let mut left = Metadata::new("u-1");
    left.migration_out_began("m-2");
    assert_eq!(jobs(&left), (vec![JobKind::MigrationOut], "m-2".into()));
    left.migration_out_ended("m-2", None);
    assert_eq!(jobs(&left), (vec![], "m-2".into()));
}

#[test]
fn a_migration_of_this_launcher_is_not_adopted() {
    let source = running();
    source.change_metadata(|metadata| metadata.migration_out_began("m-1"));
    assert!(source.take_adopted_job(JobKind::MigrationOut).is_none());
    let target = vm();
    target.expect_arrival(|metadata| {
        metadata.migration_in_began(&Vmi::default(), "m-1");
    });
    drop(target.observe(seen(DomainState::Paused(PausedReason::Migration))));
    assert!(target.take_adopted_job(JobKind::MigrationOut).is_none());
    assert_eq!(target.snapshot().jobs, [JobKind::MigrationIn]);
    drop(target.take_adopted_job(JobKind::MigrationIn).unwrap());
    assert_eq!(target.snapshot().jobs, []);
}

#[test]
// D-mig-22 (docs/differences.md).
fn a_guest_that_arrives_paused_is_paused_by_its_user_unless_its_vmi_says_that_a_disk_failed() {
    for disk_failed in [false, true] {
        let target = vm();
        let reason = if disk_failed {
            "PausedIOError"
        } else {
            "PausedByUser"
        };
        let vmi = json!({"status": {"conditions": [{"type": "Paused", "reason": reason}]}});
        let vmi = serde_json::from_value(vmi).unwrap();
        target.expect_arrival(|metadata| metadata.migration_in_began(&vmi, "m-1"));
        drop(target.observe(seen(DomainState::Paused(PausedReason::User))));
        assert_eq!(target.is_pause_requested(), !disk_failed);
    }
}

#[test]
fn nothing_is_known_before_libvirt_was_asked() {
    let vm = vm();
    assert!(vm.update_document().is_none());
    assert_eq!(vm.snapshot().phase, Phase::Unknown);
    assert!(vm.domain_not_found().is_none());
    assert_eq!(vm.snapshot().phase, Phase::Absent);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(Request),
    EndTurn,
    Observe(DomainState),
    Vanish,
    ExpectArrival,
    Begin(JobKind),
    EndJob,
    EndPod,
}

const REQUESTS: [Request; 18] = [
    Request::Sync,
    Request::Pause,
    Request::Unpause,
    Request::Resize,
    Request::Reset,
    Request::SoftReboot,
    Request::Shutdown,
    Request::Kill,
    Request::Delete,
    Request::PrepareTarget,
    Request::Finalize,
    Request::CopyMetadata,
    Request::RedefineCheckpoint,
    Request::AbortBackup,
    Request::ResumeAfterJob,
    Request::InjectSecret,
    Request::PodShutdown,
    Request::PodCleanup,
];

fn any_step() -> impl Strategy<Value = Step> {
    let states = vec![
        RUNNING,
        DomainState::Paused(PausedReason::User),
        DomainState::Paused(PausedReason::Migration),
        DomainState::Paused(PausedReason::PostcopyFailed),
        DomainState::Shutoff(ShutoffReason::Shutdown),
    ];
    prop_oneof![
        8 => prop::sample::select(&REQUESTS[..]).prop_map(Step::Ask),
        4 => Just(Step::EndTurn),
        2 => prop::sample::select(states).prop_map(Step::Observe),
        1 => Just(Step::Vanish),
        1 => Just(Step::ExpectArrival),
        2 => prop::sample::select(&JobKind::ALL[..]).prop_map(Step::Begin),
        2 => Just(Step::EndJob),
        1 => Just(Step::EndPod),
    ]
}

type Asked = Pin<Box<dyn Future<Output = Result<Permission, Refusal>>>>;

/// A VM, the request that has the turn to change it, and the requests that wait.
struct Asking {
    vm: Arc<Vm>,
    turn: Option<Permit>,
    waiting: VecDeque<(Request, Asked)>,
    jobs: Vec<Job>,
    ends: bool,
}

impl Asking {
    fn new() -> Self {
        Self {
            vm: vm(),
            turn: None,
            waiting: VecDeque::new(),
            jobs: Vec::new(),
            ends: false,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Ask(request) => {
                let vm = self.vm.clone();
                let asked: Asked = Box::pin(async move { vm.permit(request).await });
                self.waiting.push_back((request, asked));
            }
            Step::EndTurn => self.turn = None,
            Step::Observe(state) => drop(self.vm.observe(seen(state))),
            Step::Vanish if self.vm.domain_not_found().is_some() => self.vm.gone(),
            Step::Vanish => {}
            Step::ExpectArrival => self.vm.expect_arrival(|_| {}),
            Step::Begin(kind) => self.begin(kind),
            Step::EndJob => drop(self.jobs.pop()),
            Step::EndPod => {
                self.vm.refuse_starts();
                self.ends = true;
            }
        }
        self.poll();
    }

    fn begin(&mut self, kind: JobKind) {
        let before = self.vm.snapshot();
        let Ok(job) = self.vm.begin(kind) else { return };
        assert!(!self.ends || kind != JobKind::Start);
        assert!(before.jobs.iter().all(|other| kind.may_run_beside(*other)));
        self.jobs.push(job);
    }

    /// Checks that each waiting request waits for a reason.
    fn poll(&mut self) {
        let mut waited = usize::MAX;
        while self.waiting.len() < waited {
            waited = self.waiting.len();
            for _ in 0..waited {
                self.poll_next();
            }
        }
        let vm = self.vm.snapshot();
        let is_undecided = vm.phase == Phase::Unknown
            || vm.phase == Phase::MigratingOut && !vm.jobs.contains(&JobKind::MigrationOut);
        assert!(waited == 0 || is_undecided || self.turn.is_some());
    }

    /// Checks that each answer is the table's answer for the current state.
    fn poll_next(&mut self) {
        let Some((request, mut asked)) = self.waiting.pop_front() else {
            return;
        };
        let answer = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let admitted = self.vm.admit(request);
        match answer {
            Poll::Pending => {
                assert_ne!(request, Request::Kill);
                self.waiting.push_back((request, asked));
            }
            Poll::Ready(Err(refusal)) => assert_eq!(admitted, Err(refusal)),
            Poll::Ready(Ok(Permission::AlreadySo)) => {
                assert_eq!(admitted, Ok(Admission::AlreadySo));
            }
            Poll::Ready(Ok(Permission::CompareOnly)) => {
                assert_eq!(admitted, Ok(Admission::CompareOnly));
            }
            Poll::Ready(Ok(Permission::Granted(permit))) => match permit.kind() {
                PermitKind::AtOnce => assert_eq!(admitted, Ok(Admission::AtOnce)),
                PermitKind::InTurn { .. } => {
                    assert_eq!(admitted, Ok(Admission::InTurn), "{request:?}");
                    assert!(self.turn.replace(permit).is_none(), "two have the turn");
                }
                PermitKind::OfJob => panic!("{request:?} is no job"),
            },
        }
    }
}

proptest! {
    #[test]
    fn what_runs_is_what_the_table_admits_and_one_change_at_a_time(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut asking = Asking::new();
        for step in steps {
            asking.apply(step);
        }
    }
}
