//! Both launchers of a migration, with faults at every step. libvirt and QEMU are a model of QEMU's
//! driver in a peer-to-peer migration; the launchers admit, decide and report with their real code.
//!
//! ```text
//!   Idle ─► Prepared ─► Switched ─► Finished ─► Over        source: running │ running │ paused │ paused │ shut off
//!              └─────► PostCopy ───────────────► Over       target:    –    │ waits   │ waits  │ runs   │ runs
//! ```

use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use super::RUNNING;
use crate::launcher::migration_target::incoming::{Arrival, arrival};
use crate::launcher::sync::decide::{Facts, NextStep, VmiPhase, decide};
use api::vmi::Vmi as VmiObject;
use libvirt::{RunningReason, ShutoffReason};

const UID: &str = "m-1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}
use Side::{Source, Target};

/// The progress of libvirt's migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Idle,
    /// The target's QEMU waits; memory is copied.
    Prepared,
    /// The source's vCPUs are stopped; all of the memory is on its way.
    Switched,
    /// The guest runs on the target, and its memory follows.
    PostCopy,
    /// The guest runs on the target; the source does not know yet.
    Finished,
    /// The migration has succeeded or failed.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Begin,
    Advance,
    StartPostCopy,
    LoseNetwork,
    KillDaemon(Side),
    Observe(Side),
    Call(Side, Request),
}

struct World {
    source: Arc<Vm>,
    target: Arc<Vm>,
    job: Option<Job>,
    arrival: Option<Job>,
    progress: Progress,
    /// libvirt's domains; `None` if it knows none.
    domains: [Option<DomainState>; 2],
    network: bool,
    /// Whether the guest was paused when its migration began.
    leaves_paused: bool,
    /// A post-copy failed or virt-handler killed the guest, so the guest need not run any more.
    may_be_lost: bool,
}

impl World {
    fn new() -> Self {
        let vm = || Vm::new("ns1", "vm1", "u-1", Arc::default());
        let mut world = Self {
            source: vm(),
            target: vm(),
            job: None,
            arrival: None,
            progress: Progress::Idle,
            domains: [Some(RUNNING), None],
            network: true,
            leaves_paused: false,
            may_be_lost: false,
        };
        world.observe(Source);
        world.observe(Target);
        let vmi: VmiObject = serde_json::from_value(json!({"metadata": {"uid": "u-1"}})).unwrap();
        assert_eq!(
            world.target.admit(Request::PrepareTarget),
            Ok(Admission::InTurn)
        );
        world
            .target
            .expect_arrival(|metadata| metadata.migration_in_began(&vmi, UID));
        world
    }

    fn vm(&self, side: Side) -> &Arc<Vm> {
        match side {
            Source => &self.source,
            Target => &self.target,
        }
    }

    fn domain(&mut self, side: Side) -> &mut Option<DomainState> {
        &mut self.domains[side as usize]
    }

    fn state(&self, side: Side) -> Option<DomainState> {
        self.domains[side as usize]
    }

    /// Whether there is no QEMU.
    fn is_down(&self, side: Side) -> bool {
        self.state(side).is_none_or(DomainState::is_down)
    }

    fn runs(&self, side: Side) -> bool {
        self.state(side).is_some_and(DomainState::is_running)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Begin => self.begin(),
            Op::Advance => self.advance(),
            Op::StartPostCopy => {
                let is_possible = self.network && self.runs(Source) && !self.is_down(Target);
                if self.progress == Progress::Prepared && is_possible {
                    *self.domain(Source) = Some(DomainState::Paused(PausedReason::Postcopy));
                    *self.domain(Target) = Some(DomainState::Running(RunningReason::Postcopy));
                    self.progress = Progress::PostCopy;
                }
            }
            Op::LoseNetwork => self.network = false,
            Op::KillDaemon(side) => self.kill_daemon(side),
            Op::Observe(side) => self.observe(side),
            Op::Call(side, request) => self.call(side, request),
        }
    }

    fn begin(&mut self) {
        // virt-handler repeats a migration that has ended only with another UID.
        if self.progress != Progress::Idle || self.source.metadata().migration().is_some() {
            return;
        }
        if let Ok(job) = self.source.begin(JobKind::MigrationOut) {
            self.source
                .change_metadata(|metadata| metadata.migration_out_began(UID));
            self.job = Some(job);
        }
    }

    /// Advances libvirt's migration by one step, or makes it fail.
    fn advance(&mut self) {
        if self.job.is_none() {
            return;
        }
        match (self.progress, self.network) {
            // The guest, or the target's QEMU that waits for it, has ended.
            (Progress::Idle | Progress::Prepared | Progress::Switched, _)
                if self.is_down(Source) =>
            {
                self.fails();
            }
            (Progress::Prepared | Progress::Switched, _) if self.is_down(Target) => self.fails(),
            (Progress::Idle, true) => {
                self.leaves_paused = !self.runs(Source);
                *self.domain(Target) = Some(DomainState::Paused(PausedReason::Migration));
                self.progress = Progress::Prepared;
            }
            (Progress::Prepared, true) => {
                *self.domain(Source) = Some(DomainState::Paused(PausedReason::Migration));
                self.progress = Progress::Switched;
            }
            (Progress::Switched, true) => {
                *self.domain(Target) = Some(if self.leaves_paused {
                    DomainState::Paused(PausedReason::User)
                } else {
                    DomainState::Running(RunningReason::Migrated)
                });
                self.progress = Progress::Finished;
            }
            (Progress::PostCopy, true) if self.runs(Target) => {
                *self.domain(Target) = Some(DomainState::Running(RunningReason::Migrated));
                self.has_left();
            }
            (Progress::Finished, true) => self.has_left(),
            (Progress::PostCopy, _) => self.post_copy_fails(),
            _ => self.fails(),
        }
    }

    fn has_left(&mut self) {
        if !self.is_down(Source) {
            *self.domain(Source) = Some(DomainState::Shutoff(ShutoffReason::Migrated));
        }
        self.ends(None);
    }

    fn fails(&mut self) {
        // A target that was not resumed ends with its connection; one that runs continues.
        if self.progress != Progress::Finished {
            *self.domain(Target) = None;
        }
        let has_switched = matches!(self.progress, Progress::Switched | Progress::Finished);
        if has_switched && !self.is_down(Source) {
            // libvirt resumes the guest, unless the target's QEMU holds the locks of its disks.
            *self.domain(Source) = Some(match (self.is_down(Target), self.leaves_paused) {
                (false, _) => DomainState::Paused(PausedReason::Unknown),
                (true, true) => DomainState::Paused(PausedReason::User),
                (true, false) => RUNNING,
            });
        }
        self.ends(Some("lost"));
    }

    fn post_copy_fails(&mut self) {
        if !self.is_down(Source) {
            *self.domain(Source) = Some(DomainState::Paused(PausedReason::PostcopyFailed));
        }
        if self.runs(Target) {
            *self.domain(Target) = Some(DomainState::Running(RunningReason::PostcopyFailed));
        }
        self.may_be_lost = true;
        self.ends(Some("lost"));
    }

    /// Ends the migration as `run_migration` does.
    fn ends(&mut self, failure: Option<&str>) {
        self.progress = Progress::Over;
        drop(self.job.take());
        self.source.change_metadata(|metadata| {
            metadata.migration_out_ended(UID, failure.map(str::to_owned));
        });
    }

    fn kill_daemon(&mut self, side: Side) {
        match (side, self.progress) {
            (_, Progress::Idle | Progress::Over) => {}
            (_, Progress::PostCopy) => self.post_copy_fails(),
            // libvirt does not know whether the target runs, and leaves the guest as it is.
            (Source, Progress::Switched | Progress::Finished) => {
                if self.progress == Progress::Switched {
                    *self.domain(Target) = None;
                }
                self.ends(Some("the daemon has ended"));
            }
            _ => self.fails(),
        }
    }

    fn observe(&mut self, side: Side) {
        let vm = self.vm(side).clone();
        let Some(state) = self.state(side) else {
            if vm.domain_not_found().is_some() {
                vm.gone();
            }
            return;
        };
        drop(vm.observe(Observed {
            state,
            spec: DomainSpec::default(),
        }));
        // `follow_arrival` does this once libvirt's job is over.
        let snapshot = vm.snapshot();
        let job_is_over = self.progress == Progress::Over || self.progress == Progress::Finished;
        if side == Target {
            self.arrival = self
                .arrival
                .take()
                .or_else(|| vm.take_adopted_job(JobKind::MigrationIn));
        }
        if side == Target && self.arrival.is_some() {
            match arrival(snapshot.phase) {
                Arrival::InProgress => {}
                Arrival::Complete if job_is_over => {
                    self.arrival = None;
                    vm.change_metadata(Metadata::migration_in_ended);
                }
                Arrival::Complete => panic!("arrived while {:?}", self.progress),
                Arrival::Failed => self.arrival = None,
            }
        }
    }

    /// A call from virt-handler, with its effect on libvirt's domain.
    fn call(&mut self, side: Side, request: Request) {
        let vm = self.vm(side).clone();
        if !matches!(vm.admit(request), Ok(Admission::AtOnce | Admission::InTurn)) {
            assert_ne!(request, Request::Kill, "a kill is never refused");
            return;
        }
        let domain = self.state(side);
        match (request, domain) {
            (Request::Sync, _) => {
                let phase = vm.snapshot().phase;
                let facts = Facts {
                    domain: domain.map(|state| ((), state)),
                    has_run: phase.has_run(),
                    start_failed: phase == Phase::StartFailed,
                    paused_by_user: vm.is_pause_requested(),
                    vmi: VmiPhase::Running,
                };
                match decide(facts) {
                    NextStep::Resume(()) => self.resume(side),
                    NextStep::Create | NextStep::Recreate(()) => {
                        panic!("a second guest on {side:?}")
                    }
                    NextStep::Apply(())
                    | NextStep::Nothing
                    | NextStep::Ended
                    | NextStep::Wait
                    | NextStep::Lost => {}
                }
            }
            (Request::Pause, Some(DomainState::Running(_))) if self.job.is_none() => {
                vm.set_pause_requested(true);
                *self.domain(side) = Some(DomainState::Paused(PausedReason::User));
            }
            (Request::Unpause, Some(DomainState::Paused(_))) => {
                self.resume(side);
                if self.runs(side) {
                    vm.set_pause_requested(false);
                }
            }
            (Request::Kill, Some(state)) if !state.is_down() => {
                *self.domain(side) = Some(DomainState::Shutoff(ShutoffReason::Destroyed));
                self.may_be_lost = true;
            }
            _ => {}
        }
    }

    /// libvirt is asked to resume the guest.
    fn resume(&mut self, side: Side) {
        let is_post_copy = matches!(
            self.state(side),
            Some(DomainState::Paused(
                PausedReason::Postcopy | PausedReason::PostcopyFailed
            ))
        );
        assert!(!is_post_copy, "the memory is on the other side too");
        let waits = matches!(self.progress, Progress::Prepared | Progress::Switched);
        assert!(side == Source || !waits, "the memory is not here yet");
        // libvirt refuses changes of a migrating domain; no second QEMU gets the disks' locks.
        let other = match side {
            Source => Target,
            Target => Source,
        };
        let has_disks = !self.is_down(other) && self.progress >= Progress::Switched;
        if self.job.is_none() && !(side == Source && has_disks) {
            *self.domain(side) = Some(RUNNING);
        }
    }

    fn check(&self, op: Op) {
        let runs = [Source, Target].map(|side| self.runs(side));
        assert_ne!(runs, [true, true], "both run after {op:?}");
        let metadata = self.source.metadata();
        let migration = metadata.migration();
        let has_ended = migration.is_some_and(|it| it.end_timestamp.is_some());
        assert_eq!(has_ended, migration.is_some() && self.job.is_none());
        if self
            .target
            .metadata()
            .migration()
            .is_some_and(|it| it.end_timestamp.is_some())
        {
            let is_here = matches!(self.progress, Progress::Finished | Progress::Over);
            assert!(is_here, "arrived while {:?}", self.progress);
        }
    }

    /// Ends the faults: libvirt finishes, virt-handler sees it, and calls once more.
    fn calm_down(&mut self) {
        while self.job.is_some() {
            self.advance();
        }
        for _ in 0..2 {
            for side in [Source, Target] {
                self.observe(side);
                self.call(side, Request::Sync);
                self.observe(side);
            }
        }
    }

    /// Checks that the guest is where it should be, and that both launchers know.
    fn check_end(&self) {
        let has_memory = |side: Side| {
            self.state(side) != Some(DomainState::Running(RunningReason::PostcopyFailed))
        };
        let runs = |side| self.runs(side) && has_memory(side);
        // A guest paused by its user may wait on both sides: the user resumes one of them.
        let waits = |side| {
            self.state(side).is_some_and(DomainState::is_paused)
                && self.vm(side).is_pause_requested()
        };
        let is_somewhere = [Source, Target]
            .into_iter()
            .any(|side| runs(side) || waits(side));
        assert!(self.may_be_lost || is_somewhere, "{:?}", self.domains);
        for side in [Source, Target] {
            let phase = self.vm(side).snapshot().phase;
            let is_reported = phase == Phase::Running;
            assert_eq!(
                is_reported,
                runs(side),
                "{side:?} is {phase:?}: {:?}",
                self.domains
            );
        }
        let has_left =
            matches!(self.state(Source), Some(DomainState::Shutoff(_))) && !self.may_be_lost;
        let metadata = self.source.metadata();
        let failed = metadata.migration().is_some_and(|it| it.failed);
        assert!(
            !(has_left && failed),
            "a migration that has succeeded is no failure"
        );
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let side = || prop_oneof![Just(Source), Just(Target)];
    let request = prop::sample::select(vec![
        Request::Sync,
        Request::Sync,
        Request::Pause,
        Request::Unpause,
        Request::Unpause,
        Request::Kill,
    ]);
    prop_oneof![
        3 => Just(Op::Begin),
        8 => Just(Op::Advance),
        2 => Just(Op::StartPostCopy),
        1 => Just(Op::LoseNetwork),
        1 => side().prop_map(Op::KillDaemon),
        6 => side().prop_map(Op::Observe),
        4 => (side(), request).prop_map(|(side, request)| Op::Call(side, request)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_guest_runs_on_one_side_whatever_fails(ops in prop::collection::vec(any_op(), 0..40)) {
        let mut world = World::new();
        for op in ops {
            world.apply(op);
            world.check(op);
        }
        world.calm_down();
        world.check_end();
    }
}
