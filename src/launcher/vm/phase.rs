//! Where the VM is, as a function of what happened: pure, and tested over all sequences.
//!
//! ```text
//!                 start                      active
//!    Absent ─────────────────► Starting ─────────────┐
//!      │ ▲                        │                  ▼
//!      │ └──────── failed ────────┘    ┌─────────► Running ◄────────► Paused(why)
//!      │                               │             │    ▲              │
//!      │ active (adopted, or           │             ▼    │              │
//!      ├──── by migration) ────────────┤          MigratingOut           │
//!      │                               │             │                   │
//!      └──► MigratingIn ───────────────┘             ▼                   ▼
//!                                                 Stopping ──────────► Ended ──► Gone
//! ```
//! From each phase beyond `Starting` QEMU may end and the domain may vanish. None leads back to `Absent`: a launcher runs
//! one VM once.

use libvirt::{State, paused, running, shutoff};

/// Where the VM is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No domain has run. libvirt may have a definition that was never started.
    Absent,
    /// A start is in progress. virt-handler must not see the domain: it takes one that is defined and not started for
    /// one that has died, and deletes it together with what the start needs.
    Starting,
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
    /// QEMU has ended; libvirt still has the definition, with how it ended.
    Ended,
    /// libvirt does not know the domain any more, and the final event is queued.
    Gone,
}

/// Why the vCPUs are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// By a request: no sync resumes the guest.
    User,
    /// A disk failed, or is full.
    IoError,
    /// A post-copy migration failed: the guest's memory is on two nodes.
    PostcopyFailed,
    /// Anything else; the next sync resumes the guest.
    Other,
}

/// What moves the VM from one phase to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A start begins.
    StartBegan,
    /// It failed; no domain is left.
    StartFailed,
    /// It succeeded; `by_user` if the VMI wants its guest paused.
    Started {
        /// The vCPUs wait.
        paused: bool,
        /// Because the VMI says so.
        by_user: bool,
    },
    /// This launcher begins to migrate the domain to another node.
    MigrationOutBegan,
    /// libvirt has the domain in this state.
    Seen(Seen),
    /// libvirt does not know the domain.
    NotFound,
    /// The VMI was started before this launcher, and libvirt has its domain shut off.
    EndedUnseen,
}

/// A domain as libvirt reports it, with what only the launcher knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// `virDomainState`.
    pub state: State,
    /// The reason that belongs to it.
    pub reason: i32,
    /// The pause was requested.
    pub pause_requested: bool,
    /// This launcher migrates the domain to another node.
    pub migrating_out: bool,
    /// The domain comes from another node, and is not known to be all here.
    pub arriving: bool,
}

impl Phase {
    /// The phase after `input`.
    pub fn after(self, input: Input) -> Self {
        match (self, input) {
            (Self::Absent, Input::StartBegan) => Self::Starting,
            (Self::Starting, Input::StartFailed) => Self::Absent,
            (Self::Starting, Input::Started { paused: false, .. }) => Self::Running,
            (Self::Starting, Input::Started { by_user, .. }) => Self::Paused(if by_user {
                PauseReason::User
            } else {
                PauseReason::Other
            }),
            (_, Input::MigrationOutBegan) if self.is_visible() && self != Self::Ended => {
                Self::MigratingOut
            }
            (_, Input::MigrationOutBegan) => self,
            // During a start, `Started` and `StartFailed` decide, and not what libvirt shows.
            (Self::Starting, Input::Seen(_) | Input::NotFound) => self,
            (_, Input::Seen(seen)) => self.seen(seen),
            (Self::Absent | Self::Gone, Input::NotFound) => self,
            (_, Input::NotFound) => Self::Gone,
            (Self::Absent, Input::EndedUnseen) => Self::Ended,
            // A second start, or the end of one that does not run, changes nothing.
            (_, Input::StartBegan | Input::StartFailed | Input::Started { .. }) => self,
            (_, Input::EndedUnseen) => self,
        }
    }

    fn seen(self, seen: Seen) -> Self {
        let Seen { state, reason, .. } = seen;
        match state {
            _ if seen.migrating_out && !state.is_down() => Self::MigratingOut,
            // Until the post-copy is over, some of the guest's memory is on the source; if it fails, it stays there.
            State::Running
                if seen.arriving
                    && matches!(reason, running::POSTCOPY | running::POSTCOPY_FAILED) =>
            {
                Self::MigratingIn
            }
            State::Running | State::Blocked | State::PmSuspended => Self::Running,
            State::Paused if seen.arriving => seen_paused_on_arrival(reason),
            State::Paused => self.seen_paused(seen),
            State::Shutdown => Self::Stopping,
            State::Crashed => Self::Ended,
            // A definition that was never started is nothing to show.
            State::NoState if !self.has_run() => Self::Absent,
            State::Shutoff if !self.has_run() && !has_ended(reason) => Self::Absent,
            State::NoState | State::Shutoff => Self::Ended,
        }
    }

    fn seen_paused(self, seen: Seen) -> Self {
        // A domain that was paused before this launcher came: libvirt knows the reason.
        let adopted = matches!(self, Self::Absent);
        Self::Paused(match seen.reason {
            paused::MIGRATION if adopted || self == Self::MigratingIn => return Self::MigratingIn,
            paused::POSTCOPY_FAILED => PauseReason::PostcopyFailed,
            _ if seen.pause_requested => PauseReason::User,
            paused::USER if adopted => PauseReason::User,
            paused::IO_ERROR => PauseReason::IoError,
            _ => PauseReason::Other,
        })
    }

    /// The same of a domain of which it has turned out that an earlier launcher migrates it to another node.
    pub fn of_leaving(self, is_leaving: bool) -> Self {
        match self {
            Self::Running | Self::Paused(_) | Self::MigratingIn if is_leaving => Self::MigratingOut,
            phase => phase,
        }
    }

    /// Whether a domain has run, here or under an earlier launcher.
    pub fn has_run(self) -> bool {
        !matches!(self, Self::Absent | Self::Starting)
    }

    /// Whether virt-handler may see a domain.
    pub fn is_visible(self) -> bool {
        self.has_run() && self != Self::Gone
    }
}

/// A domain that arrives is paused until the source lets it go; one that is still paused then was paused there.
fn seen_paused_on_arrival(reason: i32) -> Phase {
    Phase::Paused(match reason {
        paused::USER => PauseReason::User,
        paused::IO_ERROR => PauseReason::IoError,
        paused::POSTCOPY_FAILED => PauseReason::PostcopyFailed,
        _ => return Phase::MigratingIn,
    })
}

/// Whether a domain that is shut off with this reason has run before. (The others leave it open.)
pub fn has_ended(reason: i32) -> bool {
    !matches!(reason, shutoff::UNKNOWN | shutoff::FAILED | shutoff::DAEMON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(state: State, reason: i32) -> Input {
        Input::Seen(Seen {
            state,
            reason,
            pause_requested: false,
            migrating_out: false,
            arriving: false,
        })
    }

    fn after(inputs: &[Input]) -> Phase {
        inputs
            .iter()
            .fold(Phase::Absent, |phase, input| phase.after(*input))
    }

    const STARTED: [Input; 2] = [
        Input::StartBegan,
        Input::Started {
            paused: false,
            by_user: false,
        },
    ];

    #[test]
    fn a_start_is_hidden_until_it_has_returned() {
        let defined = seen(State::Shutoff, shutoff::UNKNOWN);
        let running = seen(State::Running, 1);
        assert_eq!(
            after(&[Input::StartBegan, defined, running]),
            Phase::Starting
        );
        assert_eq!(after(&STARTED), Phase::Running);
        assert_eq!(
            after(&[Input::StartBegan, Input::StartFailed]),
            Phase::Absent
        );
        assert_eq!(after(&[defined]), Phase::Absent);
    }

    #[test]
    fn a_running_domain_is_adopted_as_it_is() {
        assert_eq!(after(&[seen(State::Running, 1)]), Phase::Running);
        for (reason, why) in [
            (paused::USER, PauseReason::User),
            (paused::IO_ERROR, PauseReason::IoError),
            (paused::POSTCOPY_FAILED, PauseReason::PostcopyFailed),
            (paused::UNKNOWN, PauseReason::Other),
        ] {
            assert_eq!(after(&[seen(State::Paused, reason)]), Phase::Paused(why));
        }
    }

    #[test]
    fn a_domain_that_ended_under_an_earlier_launcher_is_shown() {
        for reason in [
            shutoff::SHUTDOWN,
            shutoff::DESTROYED,
            shutoff::CRASHED,
            shutoff::MIGRATED,
        ] {
            assert_eq!(after(&[seen(State::Shutoff, reason)]), Phase::Ended);
        }
        assert_eq!(after(&[seen(State::Crashed, 1)]), Phase::Ended);
        for reason in [shutoff::UNKNOWN, shutoff::FAILED, shutoff::DAEMON] {
            assert_eq!(after(&[seen(State::Shutoff, reason)]), Phase::Absent);
        }
    }

    #[test]
    fn only_a_pause_that_was_asked_for_is_the_users() {
        let suspended = seen(State::Paused, paused::USER);
        let [began, started] = STARTED;
        assert_eq!(
            after(&[began, started, suspended]),
            Phase::Paused(PauseReason::Other)
        );
        let asked = Input::Seen(Seen {
            state: State::Paused,
            reason: paused::USER,
            pause_requested: true,
            migrating_out: false,
            arriving: false,
        });
        assert_eq!(
            after(&[began, started, asked]),
            Phase::Paused(PauseReason::User)
        );
    }

    #[test]
    fn a_domain_that_arrives_is_migrating_until_it_runs() {
        let arriving = seen(State::Paused, paused::MIGRATION);
        assert_eq!(after(&[arriving, arriving]), Phase::MigratingIn);
        assert_eq!(after(&[arriving, seen(State::Running, 1)]), Phase::Running);
    }

    fn arriving(state: State, reason: i32) -> Input {
        Input::Seen(Seen {
            state,
            reason,
            pause_requested: false,
            migrating_out: false,
            arriving: true,
        })
    }

    #[test]
    fn a_domain_has_arrived_when_its_source_has_let_it_go() {
        for reason in [paused::MIGRATION, paused::STARTING_UP, paused::UNKNOWN] {
            let waiting = arriving(State::Paused, reason);
            assert_eq!(after(&[waiting]), Phase::MigratingIn, "{reason}");
        }
        let postcopy = arriving(State::Running, running::POSTCOPY);
        let running = arriving(State::Running, 4);
        assert_eq!(after(&[postcopy]), Phase::MigratingIn);
        assert_eq!(after(&[postcopy, running]), Phase::Running);
        let failed = arriving(State::Running, running::POSTCOPY_FAILED);
        assert_eq!(after(&[postcopy, failed]), Phase::MigratingIn);
        for (reason, why) in [
            (paused::USER, PauseReason::User),
            (paused::IO_ERROR, PauseReason::IoError),
            (paused::POSTCOPY_FAILED, PauseReason::PostcopyFailed),
        ] {
            let arrived = arriving(State::Paused, reason);
            assert_eq!(after(&[postcopy, arrived]), Phase::Paused(why));
        }
    }

    fn any_input() -> impl Strategy<Value = Input> {
        let state = prop::sample::select(vec![
            State::NoState,
            State::Running,
            State::Blocked,
            State::Paused,
            State::Shutdown,
            State::Shutoff,
            State::Crashed,
            State::PmSuspended,
        ]);
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        let seen = (state, 0..15_i32, flags).prop_map(|(state, reason, flags)| {
            let (pause_requested, migrating_out, arriving) = flags;
            Input::Seen(Seen {
                state,
                reason,
                pause_requested,
                migrating_out,
                arriving,
            })
        });
        prop_oneof![
            4 => seen,
            1 => Just(Input::StartBegan),
            1 => Just(Input::StartFailed),
            1 => (any::<bool>(), any::<bool>())
                .prop_map(|(paused, by_user)| Input::Started { paused, by_user }),
            1 => Just(Input::NotFound),
            1 => Just(Input::MigrationOutBegan),
            1 => Just(Input::EndedUnseen),
        ]
    }

    proptest! {
        #[test]
        fn a_vm_that_has_run_never_starts_again(inputs in prop::collection::vec(any_input(), 0..40)) {
            let mut phase = Phase::Absent;
            for input in inputs {
                let next = phase.after(input);
                prop_assert!(!phase.has_run() || next.has_run(), "{phase:?} {input:?} {next:?}");
                prop_assert!(
                    next != Phase::Starting || matches!(phase, Phase::Absent | Phase::Starting),
                    "{phase:?} {input:?}"
                );
                prop_assert!(
                    phase != Phase::Starting || !matches!(input, Input::Seen(_)) || next == Phase::Starting,
                    "a start is not shown before it has returned"
                );
                phase = next;
            }
        }

        #[test]
        fn the_same_input_twice_is_the_same_as_once(
            inputs in prop::collection::vec(any_input(), 0..20),
            last in any_input(),
        ) {
            let once = after(&inputs).after(last);
            // A pause seen again is not an adoption any more; who asked for it is then for `pause_requested` to say.
            let twice = once.after(last);
            prop_assert!(
                once == twice
                    || matches!((once, twice), (Phase::Paused(PauseReason::User), Phase::Paused(PauseReason::Other))),
                "{once:?} {twice:?} after {last:?}"
            );
        }
    }
}
