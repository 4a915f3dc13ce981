//! Decides what a sync has to do, as a function of the current state.
//!
//! ```text
//!  defined, never started ──► Recreate
//!                                │                  it has run: Lost; the VMI is over: Nothing
//!                                ▼                      │
//!              ┌────────────── Create ◄────────── no domain ◄── Wait ◄── left of a failed start
//!              ▼
//!  (hidden until the start has returned) ──► running ──► Apply, repeatedly
//!                                              │  ▲
//!          by the user or a dump: Apply ◄── paused ┘ otherwise: Resume
//!                                              │
//!                                              ▼
//!                                      has ended: Ended, never started again
//! ```

use crate::launcher::vm::{is_leftover_of_failed_start, proves_it_has_run};
use api::vmi::Vmi;
use libvirt::{DomainState, PausedReason};

/// The state when a sync starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launcher) struct Facts<D> {
    /// The domain with its state, if libvirt has it.
    pub domain: Option<(D, DomainState)>,
    /// This launcher has seen a QEMU process of the domain, be it one that only arrives.
    pub has_run: bool,
    /// The last start has failed.
    pub start_failed: bool,
    /// A request paused the guest.
    pub paused_by_user: bool,
    pub vmi: VmiPhase,
}

/// The part of a VMI's life that decides whether its domain may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launcher) enum VmiPhase {
    /// `status.phase` is before `Running`, such as `Scheduled`.
    Early,
    /// `status.phase` is `Running`.
    Running,
    /// `status.phase` is `Succeeded` or `Failed`.
    Final,
    /// The VMI has a `deletionTimestamp`.
    Deleting,
}

impl VmiPhase {
    pub fn of(vmi: &Vmi) -> Self {
        match vmi.status.phase.as_str() {
            "Succeeded" | "Failed" => Self::Final,
            _ if vmi.metadata.deletion_timestamp.is_some() => Self::Deleting,
            "Running" => Self::Running,
            _ => Self::Early,
        }
    }
}

/// What a sync has to do, with the domain for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launcher) enum NextStep<D> {
    /// Define and start the domain.
    Create,
    /// Undefine a definition that was never started (the launcher or libvirt died), then create.
    Recreate(D),
    /// Wait until libvirt has ended the QEMU of a failed start, then decide again.
    Wait,
    /// Resume the domain, also one that a disk's error (IOError) has paused, then [`Self::Apply`].
    Resume(D),
    /// Change the domain, which runs or is paused by user, to match the VMI.
    Apply(D),
    /// Do nothing: the VMI's phase does not allow a start.
    Nothing,
    /// Only note the end: the guest ends or has ended. virt-handler reads how, and deletes it.
    Ended,
    /// The domain should exist but does not.
    Lost,
}

pub(in crate::launcher) fn decide<D>(facts: Facts<D>) -> NextStep<D> {
    let may_start = facts.vmi == VmiPhase::Early && !facts.has_run;
    let Some((domain, state)) = facts.domain else {
        return match facts.vmi {
            VmiPhase::Final | VmiPhase::Deleting => NextStep::Nothing,
            _ if may_start => NextStep::Create,
            _ => NextStep::Lost,
        };
    };
    match state {
        state if facts.start_failed && is_leftover_of_failed_start(state) => NextStep::Wait,
        DomainState::Running(_) | DomainState::Blocked | DomainState::PmSuspended => {
            NextStep::Apply(domain)
        }
        // libvirt resumes the guest when the dump has ended, and until then a request to resume
        // waits.
        // D-vm-21 (docs/differences.md).
        DomainState::Paused(PausedReason::Dump) => NextStep::Apply(domain),
        DomainState::Paused(_) if facts.paused_by_user => NextStep::Apply(domain),
        DomainState::Paused(_) => NextStep::Resume(domain),
        DomainState::Shutoff(reason) if may_start && !proves_it_has_run(reason) => {
            NextStep::Recreate(domain)
        }
        DomainState::Shutdown(_)
        | DomainState::Shutoff(_)
        | DomainState::Crashed(_)
        | DomainState::NoState => NextStep::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::{RunningReason, ShutoffReason};

    const FRESH: Facts<()> = Facts {
        domain: None,
        has_run: false,
        start_failed: false,
        paused_by_user: false,
        vmi: VmiPhase::Early,
    };

    #[test]
    fn a_vmi_without_a_domain_is_started_once() {
        for (vmi, has_run, step) in [
            (VmiPhase::Early, false, NextStep::Create),
            (VmiPhase::Early, true, NextStep::Lost),
            (VmiPhase::Running, false, NextStep::Lost),
            (VmiPhase::Running, true, NextStep::Lost),
            (VmiPhase::Final, false, NextStep::Nothing),
            (VmiPhase::Final, true, NextStep::Nothing),
            (VmiPhase::Deleting, false, NextStep::Nothing),
            (VmiPhase::Deleting, true, NextStep::Nothing),
        ] {
            let facts = Facts {
                vmi,
                has_run,
                ..FRESH
            };
            assert_eq!(decide(facts), step, "{facts:?}");
        }
    }

    #[test]
    fn a_running_domain_is_changed_in_place() {
        for state in [
            DomainState::Running(RunningReason::Booted),
            DomainState::Blocked,
            DomainState::PmSuspended,
        ] {
            for vmi in [VmiPhase::Early, VmiPhase::Running, VmiPhase::Deleting] {
                let facts = Facts {
                    domain: Some(((), state)),
                    has_run: true,
                    vmi,
                    ..FRESH
                };
                assert_eq!(decide(facts), NextStep::Apply(()), "{facts:?}");
            }
        }
    }

    #[test]
    fn a_guest_that_a_memory_dump_has_paused_is_not_resumed() {
        let facts = Facts {
            domain: Some(((), DomainState::Paused(PausedReason::Dump))),
            has_run: true,
            ..FRESH
        };
        assert_eq!(decide(facts), NextStep::Apply(()));
    }

    #[test]
    fn a_paused_domain_is_resumed_unless_somebody_paused_it() {
        for reason in [
            PausedReason::Unknown,
            PausedReason::User,
            PausedReason::IoError,
            PausedReason::StartingUp,
        ] {
            let facts = Facts {
                domain: Some(((), DomainState::Paused(reason))),
                has_run: true,
                vmi: VmiPhase::Running,
                ..FRESH
            };
            assert_eq!(decide(facts), NextStep::Resume(()), "{reason:?}");
            let by_user = Facts {
                paused_by_user: true,
                ..facts
            };
            assert_eq!(decide(by_user), NextStep::Apply(()), "{reason:?}");
        }
    }

    #[test]
    // D-vm-3 (docs/differences.md).
    fn a_domain_that_has_ended_is_never_started_again() {
        let (no_state, shutdown, shutoff, crashed) = (0, 4, 5, 6);
        for state in [shutdown, shutoff, crashed, no_state] {
            for reason in 0..9 {
                for vmi in [
                    VmiPhase::Early,
                    VmiPhase::Running,
                    VmiPhase::Final,
                    VmiPhase::Deleting,
                ] {
                    let facts = Facts {
                        domain: Some(((), DomainState::from_raw(state, reason))),
                        has_run: true,
                        vmi,
                        ..FRESH
                    };
                    assert_eq!(decide(facts), NextStep::Ended, "{facts:?}");
                }
            }
        }
    }

    #[test]
    fn a_failed_starts_qemu_is_neither_resumed_nor_taken_for_the_guests_end() {
        let (shutdown, unknown) = (4, 0);
        for state in [
            DomainState::Paused(PausedReason::StartingUp),
            DomainState::from_raw(shutdown, unknown),
        ] {
            let facts = Facts {
                domain: Some(((), state)),
                start_failed: true,
                ..FRESH
            };
            assert_eq!(decide(facts), NextStep::Wait, "{state:?}");
        }
    }

    #[test]
    fn a_definition_that_was_never_started_is_made_anew() {
        let off = |reason| Facts {
            domain: Some(((), DomainState::Shutoff(reason))),
            ..FRESH
        };
        for reason in [
            ShutoffReason::Unknown,
            ShutoffReason::Failed,
            ShutoffReason::Daemon,
        ] {
            assert_eq!(decide(off(reason)), NextStep::Recreate(()), "{reason:?}");
            let deleting = Facts {
                vmi: VmiPhase::Deleting,
                ..off(reason)
            };
            assert_eq!(decide(deleting), NextStep::Ended, "{reason:?}");
        }
        for reason in [
            ShutoffReason::Shutdown,
            ShutoffReason::Destroyed,
            ShutoffReason::Crashed,
            ShutoffReason::Migrated,
        ] {
            assert_eq!(decide(off(reason)), NextStep::Ended, "{reason:?}");
        }
    }

    #[test]
    fn the_phase_is_read_from_the_vmi() {
        let mut vmi = Vmi::default();
        assert_eq!(VmiPhase::of(&vmi), VmiPhase::Early);
        vmi.status.phase = "Running".into();
        assert_eq!(VmiPhase::of(&vmi), VmiPhase::Running);
        vmi.metadata.deletion_timestamp = Some("2026-01-02T03:04:05Z".into());
        assert_eq!(VmiPhase::of(&vmi), VmiPhase::Deleting);
        vmi.status.phase = "Failed".into();
        assert_eq!(VmiPhase::of(&vmi), VmiPhase::Final);
    }
}
