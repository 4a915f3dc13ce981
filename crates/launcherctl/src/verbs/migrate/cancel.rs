//! Why `migrate` cancels a migration.

use std::fmt;

use api::proto::inspect::v1::MigrationEvent;
use api::proto::inspect::v1::migration_event::Event;

/// How the launcher ends its report of a migration that was cancelled; KubeVirt's text.
const ABORTED: &str = "Live migration has been aborted";

/// Who has cancelled it.
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
    /// The launcher reports the cancellation as a call, and its result as an abort. Here the cause is known.
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
    use super::super::record::Record;
    use super::super::record::tests::event;
    use super::*;
    use api::proto::inspect::v1::{MigrationDecision, MigrationEnded};

    #[test]
    fn the_cause_stands_in_place_of_the_call_and_of_the_abort() {
        let mut record = Record::default();
        let decision = MigrationDecision {
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
        for event in [
            event(2, Event::Decision(decision)),
            event(3, ended(ABORTED)),
        ] {
            let mut event = event;
            Cancel::Timeout(2).explain(&mut event);
            record.add(&event);
        }
        let text = super::super::record::decision(&record.decisions[0].what);
        let why = "not complete after --timeout 2 s";
        assert_eq!(text, format!("migration is cancelled: {why}"));
        assert!(record.summary().ends_with(why), "{}", record.summary());
        // Another failure is not the cancellation's.
        let mut other = event(3, ended("no route"));
        Cancel::Signal.explain(&mut other);
        assert_eq!(other, event(3, ended("no route")));
    }
}
