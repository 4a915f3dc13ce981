//! Why `migrate` cancels a migration.

use std::fmt;

use api::proto::inspect::v1::MigrationEvent;
use api::proto::inspect::v1::migration_event::Event;

/// The end of the launcher's report on a cancelled migration; KubeVirt's text.
const ABORTED: &str = "Live migration has been aborted";

/// The cause of the cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// Ctrl-C, or another signal.
    Signal,
    /// `--timeout`, in seconds.
    Timeout(u64),
}

impl fmt::Display for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("by Ctrl-C or another signal"),
            Self::Timeout(seconds) => write!(f, "not complete after --timeout {seconds} s"),
        }
    }
}

impl Cancel {
    /// The launcher reports the cancellation as a call, and its result as an abort. Adds the cause,
    /// which is known here.
    pub fn explain(self, event: &mut MigrationEvent) {
        match &mut event.event {
            Some(Event::Decision(decision)) if decision.action == "Abort" => {
                decision.why = self.to_string();
            }
            Some(Event::Ended(ended)) if ended.failure == ABORTED => {
                ended.failure = match self {
                    Self::Signal => format!("cancelled {self}"),
                    Self::Timeout(_) => format!("cancelled, as it was {self}"),
                };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::record::{Record, decision};
    use super::*;
    use api::proto::inspect::v1::{MigrationDecision, MigrationEnded};

    fn event(seconds: u64, event: Event) -> MigrationEvent {
        MigrationEvent {
            at_micros: seconds * 1_000_000,
            event: Some(event),
        }
    }

    #[test]
    fn the_cause_stands_in_place_of_the_call_and_of_the_abort() {
        let mut cancelled = MigrationDecision {
            action: "Abort".into(),
            why: "CancelVirtualMachineMigration was called".into(),
            succeeded: true,
        };
        let ended = |failure: &str| {
            Event::Ended(MigrationEnded {
                failure: failure.into(),
                ..MigrationEnded::default()
            })
        };
        let mut record = Record::default();
        let mut aborted = event(3, ended(ABORTED));
        Cancel::Timeout(2).explain(&mut aborted);
        record.add(&aborted);
        let mut event_of_call = event(2, Event::Decision(cancelled.clone()));
        Cancel::Timeout(2).explain(&mut event_of_call);
        let why = "not complete after --timeout 2 s";
        cancelled.why = why.to_owned();
        assert_eq!(event_of_call, event(2, Event::Decision(cancelled.clone())));
        assert_eq!(
            decision(&cancelled),
            format!("migration is cancelled: {why}")
        );
        assert!(record.summary().ends_with(why), "{}", record.summary());
        // Another failure is not caused by the cancellation.
        let mut other = event(3, ended("no route"));
        Cancel::Signal.explain(&mut other);
        assert_eq!(other, event(3, ended("no route")));
    }
}
