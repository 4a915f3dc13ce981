//! The VM's phase, as a function of what happened: pure, and tested over all sequences.
//!
//! ```text
//!   Unknown                 start               defined            active
//!      │    ┌──────────────────► Preparing ─────► Starting ──────────┐
//!      ▼    │                         │ failed       │               ▼
//!    Absent ┤    StartFailed ◄────────┴──────────────┘ ┌───────► Running ◄─────► Paused(why)
//!      │    │        └── start: Preparing              │           │    ▲           │
//!      │    └── active (adopted) ──────────────────────┤           ▼    │           │
//!      ▼                                               │        MigratingOut        │
//!   Expected ──► MigratingIn ──────────────────────────┘           │                │
//!                                                                  ▼                ▼
//!                                                              Stopping ────────► Ended ──► Gone
//! ```
//! In each phase after `Starting`, QEMU may end and the domain may vanish. No phase leads back to
//! `Absent`: a launcher runs one VM once.

use libvirt::{DomainState, PausedReason, RunningReason, ShutoffReason};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// libvirt has not been asked yet.
    #[default]
    Unknown,
    /// No domain has run. libvirt may have a definition that was never started.
    Absent,
    /// The pod is prepared for a domain from another node, which libvirt has not shown yet.
    Expected,
    /// A start is in progress. virt-handler must not see the domain: it takes a domain that is
    /// defined and not started for a dead one, and deletes it together with what the start needs.
    Preparing,
    /// A start is in progress and has defined the domain, which virt-handler must not see yet.
    Starting,
    /// This launcher's start has failed. A definition that libvirt still has does not count.
    StartFailed,
    /// The guest runs.
    Running,
    /// The vCPUs are stopped.
    Paused(PauseReason),
    /// The domain arrives from another node.
    MigratingIn,
    /// The domain leaves for another node.
    MigratingOut,
    /// The guest shuts down.
    Stopping,
    /// QEMU has ended; libvirt still has the definition and how it ended.
    Ended,
    /// libvirt no longer knows the domain, and the final event is queued.
    Gone,
}

/// Why the vCPUs are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// A request paused the guest, so no sync resumes it.
    User,
    /// A disk failed, or is full.
    IoError,
    /// A post-copy migration failed: the guest's memory is on two nodes.
    PostcopyFailed,
    /// Any other reason.
    Other,
}

/// An event that may move the VM from one phase to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseInput {
    StartBegan,
    /// The start has defined the domain, and libvirt has given it the name and UUID asked for.
    Defined,
    /// The start failed. What libvirt still has of it does not count.
    StartFailed,
    /// The start succeeded.
    Started {
        /// The vCPUs are paused.
        paused: bool,
        /// The VMI wants its guest paused.
        by_user: bool,
    },
    /// The pod is prepared for the domain from another node.
    ArrivalPrepared,
    /// This launcher begins to migrate the domain to another node.
    MigrationOutBegan,
    /// libvirt has the domain in this state.
    Seen(Seen),
    /// libvirt does not know the domain.
    NotFound,
    /// A sync finds a domain that ends or has ended.
    EndedUnseen,
}

/// A domain as libvirt reports it, with what only the launcher knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// libvirt's state.
    pub state: DomainState,
    /// The pause was requested.
    pub pause_requested: bool,
    /// This launcher migrates the domain to another node.
    pub migrating_out: bool,
    /// The domain comes from another node and may not be completely here.
    pub arriving: bool,
}

impl Phase {
    /// The phase after `input`.
    pub fn after(self, input: PhaseInput) -> Self {
        match (self, input) {
            (Self::Unknown | Self::Absent | Self::StartFailed, PhaseInput::StartBegan) => {
                Self::Preparing
            }
            (Self::Preparing, PhaseInput::Defined) => Self::Starting,
            (Self::Preparing | Self::Starting, PhaseInput::StartFailed) => Self::StartFailed,
            (Self::Preparing | Self::Starting, PhaseInput::Started { paused, by_user }) => {
                match (paused, by_user) {
                    (false, _) => Self::Running,
                    (true, true) => Self::Paused(PauseReason::User),
                    (true, false) => Self::Paused(PauseReason::Other),
                }
            }
            (_, PhaseInput::ArrivalPrepared) if !self.has_run() && !self.is_starting() => {
                Self::Expected
            }
            (_, PhaseInput::MigrationOutBegan) if self.is_visible() && self != Self::Ended => {
                Self::MigratingOut
            }
            // During a start, `Started` and `StartFailed` decide, not libvirt's view.
            (Self::Preparing | Self::Starting, PhaseInput::Seen(_) | PhaseInput::NotFound) => self,
            (_, PhaseInput::Seen(seen)) => self.seen(seen),
            (Self::Unknown, PhaseInput::NotFound) => Self::Absent,
            (_, PhaseInput::NotFound) if self.is_visible() => Self::Gone,
            (_, PhaseInput::EndedUnseen) if !self.has_run() && !self.is_starting() => Self::Ended,
            // A second start, or the end of one that does not run, changes nothing.
            _ => self,
        }
    }

    fn seen(self, seen: Seen) -> Self {
        match seen.state {
            state if self == Self::StartFailed && is_leftover_of_failed_start(state) => self,
            state if seen.migrating_out && !state.is_down() => Self::MigratingOut,
            // Until the post-copy is over, some of the guest's memory is on the source; if it
            // fails, it stays there.
            DomainState::Running(RunningReason::Postcopy | RunningReason::PostcopyFailed)
                if seen.arriving =>
            {
                Self::MigratingIn
            }
            DomainState::Running(_) | DomainState::Blocked | DomainState::PmSuspended => {
                Self::Running
            }
            DomainState::Paused(reason) if seen.arriving => seen_paused_on_arrival(reason),
            DomainState::Paused(reason) => self.seen_paused(reason, seen.pause_requested),
            DomainState::Shutdown(_) => Self::Stopping,
            DomainState::Crashed(_) => Self::Ended,
            // A definition that was never started is not shown.
            DomainState::NoState if !self.has_run() => self.without_domain(),
            DomainState::Shutoff(reason) if !self.has_run() && !proves_it_has_run(reason) => {
                self.without_domain()
            }
            DomainState::NoState | DomainState::Shutoff(_) => Self::Ended,
        }
    }

    fn without_domain(self) -> Self {
        self.after(PhaseInput::NotFound)
    }

    fn seen_paused(self, reason: PausedReason, requested: bool) -> Self {
        Self::Paused(match reason {
            PausedReason::Migration if !self.has_run() || self == Self::MigratingIn => {
                return Self::MigratingIn;
            }
            PausedReason::PostcopyFailed => PauseReason::PostcopyFailed,
            _ if requested => PauseReason::User,
            PausedReason::IoError => PauseReason::IoError,
            _ => PauseReason::Other,
        })
    }

    /// Corrects the phase if an earlier launcher turns out to be migrating the domain away.
    pub fn migrating_out_if(self, is_leaving: bool) -> Self {
        match self {
            Self::Running | Self::Paused(_) | Self::MigratingIn if is_leaving => Self::MigratingOut,
            phase => phase,
        }
    }

    /// Whether a domain has run, here or under an earlier launcher.
    pub fn has_run(self) -> bool {
        !matches!(
            self,
            Self::Unknown | Self::Absent | Self::Expected | Self::StartFailed
        ) && !self.is_starting()
    }

    /// Whether libvirt has not shown yet what there is: it was not asked, or the domain is to
    /// arrive.
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Unknown | Self::Expected)
    }

    /// Whether this launcher is starting the domain.
    pub fn is_starting(self) -> bool {
        matches!(self, Self::Preparing | Self::Starting)
    }

    /// Whether virt-handler may see the domain. If not: no events, and an empty `GetDomain`.
    pub fn is_visible(self) -> bool {
        self.has_run() && self != Self::Gone
    }
}

/// An arriving domain is paused until the source releases it. With one of these three reasons it
/// has been released and stays paused.
fn seen_paused_on_arrival(reason: PausedReason) -> Phase {
    Phase::Paused(match reason {
        PausedReason::User => PauseReason::User,
        PausedReason::IoError => PauseReason::IoError,
        PausedReason::PostcopyFailed => PauseReason::PostcopyFailed,
        _ => return Phase::MigratingIn,
    })
}

/// Whether the reason shows that a shut-off domain has run. `false` means that it may have run.
pub fn proves_it_has_run(reason: ShutoffReason) -> bool {
    !matches!(
        reason,
        ShutoffReason::Unknown | ShutoffReason::Failed | ShutoffReason::Daemon
    )
}

/// Whether a domain in this state is the leftover of a failed start. Valid only while no start is
/// in progress. libvirt ends such a QEMU when its daemon is back.
pub fn is_leftover_of_failed_start(state: DomainState) -> bool {
    matches!(
        state,
        DomainState::Shutdown(_) | DomainState::Paused(PausedReason::StartingUp)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::CrashedReason;
    use proptest::prelude::*;

    const RUNNING: DomainState = DomainState::Running(RunningReason::Booted);

    const fn plain(state: DomainState) -> Seen {
        Seen {
            state,
            pause_requested: false,
            migrating_out: false,
            arriving: false,
        }
    }

    fn seen(state: DomainState) -> PhaseInput {
        PhaseInput::Seen(plain(state))
    }

    fn after(inputs: &[PhaseInput]) -> Phase {
        inputs
            .iter()
            .fold(Phase::Unknown, |phase, input| phase.after(*input))
    }

    const STARTED: [PhaseInput; 2] = [
        PhaseInput::StartBegan,
        PhaseInput::Started {
            paused: false,
            by_user: false,
        },
    ];

    #[test]
    fn a_start_is_hidden_until_it_has_returned() {
        let defined = seen(DomainState::Shutoff(ShutoffReason::Unknown));
        let running = seen(RUNNING);
        let began = PhaseInput::StartBegan;
        for (inputs, phase) in [
            (&[began, defined, running][..], Phase::Preparing),
            (&[began, PhaseInput::Defined, running], Phase::Starting),
            (&STARTED, Phase::Running),
            (&[began, PhaseInput::StartFailed], Phase::StartFailed),
            (&[defined], Phase::Absent),
        ] {
            assert_eq!(after(inputs), phase, "{inputs:?}");
        }
    }

    #[test]
    fn a_running_domain_is_adopted_as_it_is() {
        assert_eq!(after(&[seen(RUNNING)]), Phase::Running);
        for (reason, why) in [
            (PausedReason::IoError, PauseReason::IoError),
            (PausedReason::PostcopyFailed, PauseReason::PostcopyFailed),
            (PausedReason::Unknown, PauseReason::Other),
        ] {
            let paused = seen(DomainState::Paused(reason));
            assert_eq!(after(&[paused]), Phase::Paused(why));
        }
    }

    #[test]
    fn a_domain_that_ended_under_an_earlier_launcher_is_shown() {
        for (reason, phase) in [
            (ShutoffReason::Shutdown, Phase::Ended),
            (ShutoffReason::Destroyed, Phase::Ended),
            (ShutoffReason::Crashed, Phase::Ended),
            (ShutoffReason::Migrated, Phase::Ended),
            (ShutoffReason::Unknown, Phase::Absent),
            (ShutoffReason::Failed, Phase::Absent),
            (ShutoffReason::Daemon, Phase::Absent),
        ] {
            let off = seen(DomainState::Shutoff(reason));
            assert_eq!(after(&[off]), phase, "{reason:?}");
        }
        let crashed = seen(DomainState::Crashed(CrashedReason::Panicked));
        assert_eq!(after(&[crashed]), Phase::Ended);
    }

    #[test]
    fn only_a_pause_that_was_asked_for_is_the_users() {
        for (pause_requested, why) in [(false, PauseReason::Other), (true, PauseReason::User)] {
            let suspended = PhaseInput::Seen(Seen {
                pause_requested,
                ..plain(DomainState::Paused(PausedReason::User))
            });
            assert_eq!(after(&STARTED).after(suspended), Phase::Paused(why));
        }
    }

    #[test]
    fn a_domain_that_arrives_is_migrating_until_it_runs() {
        let arriving = seen(DomainState::Paused(PausedReason::Migration));
        assert_eq!(after(&[arriving, arriving]), Phase::MigratingIn);
        assert_eq!(after(&[arriving, seen(RUNNING)]), Phase::Running);
    }

    fn arriving(state: DomainState) -> PhaseInput {
        PhaseInput::Seen(Seen {
            arriving: true,
            ..plain(state)
        })
    }

    #[test]
    fn a_domain_has_arrived_when_its_source_has_let_it_go() {
        for reason in [
            PausedReason::Migration,
            PausedReason::StartingUp,
            PausedReason::Unknown,
        ] {
            let waiting = arriving(DomainState::Paused(reason));
            assert_eq!(after(&[waiting]), Phase::MigratingIn, "{reason:?}");
        }
        let postcopy = arriving(DomainState::Running(RunningReason::Postcopy));
        let running = arriving(DomainState::Running(RunningReason::Migrated));
        assert_eq!(after(&[postcopy]), Phase::MigratingIn);
        assert_eq!(after(&[postcopy, running]), Phase::Running);
        let failed = arriving(DomainState::Running(RunningReason::PostcopyFailed));
        assert_eq!(after(&[postcopy, failed]), Phase::MigratingIn);
        for (reason, why) in [
            (PausedReason::User, PauseReason::User),
            (PausedReason::IoError, PauseReason::IoError),
            (PausedReason::PostcopyFailed, PauseReason::PostcopyFailed),
        ] {
            let arrived = arriving(DomainState::Paused(reason));
            assert_eq!(after(&[postcopy, arrived]), Phase::Paused(why));
        }
    }

    #[test]
    fn a_guest_that_ends_on_its_way_out_has_ended() {
        let leaving = |state| {
            PhaseInput::Seen(Seen {
                migrating_out: true,
                ..plain(state)
            })
        };
        let leaves = after(&STARTED).after(leaving(RUNNING));
        assert_eq!(leaves, Phase::MigratingOut);
        let down = leaving(DomainState::Shutoff(ShutoffReason::Shutdown));
        assert_eq!(leaves.after(down), Phase::Ended);
    }

    fn any_input() -> impl Strategy<Value = PhaseInput> {
        let state =
            (0..8_i32, 0..15_i32).prop_map(|(state, reason)| DomainState::from_raw(state, reason));
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        let seen = (state, flags).prop_map(|(state, flags)| {
            let (pause_requested, migrating_out, arriving) = flags;
            PhaseInput::Seen(Seen {
                state,
                pause_requested,
                migrating_out,
                arriving,
            })
        });
        prop_oneof![
            4 => seen,
            1 => Just(PhaseInput::StartBegan),
            1 => Just(PhaseInput::Defined),
            1 => Just(PhaseInput::StartFailed),
            1 => (any::<bool>(), any::<bool>())
                .prop_map(|(paused, by_user)| PhaseInput::Started { paused, by_user }),
            1 => Just(PhaseInput::NotFound),
            1 => Just(PhaseInput::ArrivalPrepared),
            1 => Just(PhaseInput::MigrationOutBegan),
            1 => Just(PhaseInput::EndedUnseen),
        ]
    }

    proptest! {
        #[test]
        fn a_vm_that_has_run_never_starts_again(inputs in prop::collection::vec(any_input(), 0..40)) {
            let mut phase = Phase::Unknown;
            for input in inputs {
                let next = phase.after(input);
                prop_assert!(!phase.has_run() || next.has_run(), "{phase:?} {input:?} {next:?}");
                prop_assert!(
                    !next.is_starting() || !phase.has_run() && phase != Phase::Expected,
                    "{phase:?} {input:?}"
                );
                prop_assert!(
                    !phase.is_starting() || !matches!(input, PhaseInput::Seen(_)) || next == phase,
                    "a start is not shown before it has returned"
                );
                prop_assert!(next != Phase::Unknown || phase == Phase::Unknown);
                phase = next;
            }
        }

        #[test]
        fn the_same_input_twice_is_the_same_as_once(
            inputs in prop::collection::vec(any_input(), 0..20),
            last in any_input(),
        ) {
            let once = after(&inputs).after(last);
            prop_assert_eq!(once, once.after(last), "after {:?}", last);
        }
    }
}
