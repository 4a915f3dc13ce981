//! A migration as a picture: what is left, how fast it goes and how fast the guest undoes it, and the downtime that QEMU
//! expects, over one axis of time; what was decided is marked in all of them.

use super::record::{At, Record, decision, guest_writes, measured_downtime};
use crate::view::picture::{Panel, Picture};
use api::proto::inspect::v1::{MigrationBegan, MigrationSample};
use client::refusal;

/// Bytes of a MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// A value of a sample, if it has one.
type Sampled = fn(&MigrationSample) -> Option<u64>;

/// Curves with the same unit.
struct Kind {
    title: &'static str,
    /// Of the values, in the title's unit.
    divisor: f64,
    curves: &'static [(&'static str, Sampled)],
    /// A value of 0 is none.
    limit: (&'static str, fn(&MigrationBegan) -> u64),
}

const KINDS: [Kind; 4] = [
    Kind {
        title: "Data, MiB",
        divisor: MIB,
        curves: &[
            ("left to transfer", |it| it.data_remaining),
            ("sent so far", |it| it.data_processed),
        ],
        limit: ("", |_| 0),
    },
    Kind {
        title: "Rates, MiB/s",
        divisor: MIB,
        curves: &[
            ("memory transferred", |it| it.memory_bandwidth),
            ("memory written by the guest", guest_writes),
            ("disks transferred", |it| {
                it.disk_bandwidth.filter(|rate| *rate > 0)
            }),
        ],
        limit: ("bandwidth limit", |it| it.bandwidth_limit),
    },
    Kind {
        title: "Downtime if it ended now, ms",
        divisor: 1.0,
        curves: &[("expected downtime", measured_downtime)],
        limit: ("maximum downtime", |it| it.max_downtime_ms),
    },
    Kind {
        title: "Throttling, % of the guest's CPU time",
        divisor: 1.0,
        curves: &[("auto-converge slows the guest down", |it| {
            it.throttle_percent.filter(|percent| *percent > 0)
        })],
        limit: ("", |_| 0),
    },
];

/// Draws the migration, whether it has ended or not.
#[must_use]
pub fn draw(record: &Record) -> String {
    let mut picture = Picture::default();
    let summary = record.summary();
    // A line has no place for what to do.
    let (summary, _) = refusal::split_remedy(&summary);
    picture.line(&format!("Migration {}: {summary}", record.began.uid));
    let marks: Vec<f64> = record.decisions.iter().map(|it| it.seconds).collect();
    let samples = record.samples.iter().map(|it| it.seconds);
    let times = samples.chain(record.ended.iter().map(|it| it.seconds));
    let end = times.chain(marks.iter().copied()).fold(0.1, f64::max);
    // A short migration has none of some.
    let panels = KINDS.iter().map(|kind| panel(kind, record));
    for panel in panels.filter(|panel| !panel.curves.is_empty()) {
        picture.curves(&panel, end, &marks);
    }
    picture.line("Time is in seconds from the beginning.");
    for (index, At { seconds, what }) in record.decisions.iter().enumerate() {
        let number = index.saturating_add(1);
        picture.line(&format!("{number}   at {seconds:.1} s: {}", decision(what)));
    }
    picture.finish()
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn panel(kind: &Kind, record: &Record) -> Panel {
    let curves = kind.curves.iter().map(|(name, value)| {
        let points = record.samples.iter().filter_map(|at| {
            let value = value(&at.what)?;
            Some((at.seconds, value as f64 / kind.divisor))
        });
        (*name, points.collect::<Vec<_>>())
    });
    let (name, limit) = (kind.limit.0, (kind.limit.1)(&record.began));
    Panel {
        title: kind.title,
        curves: curves.filter(|(_, points)| !points.is_empty()).collect(),
        limit: (limit > 0).then_some((name, limit as f64 / kind.divisor)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::event;
    use super::super::record::tests::stalled;
    use super::*;
    use api::proto::inspect::v1::MigrationEnded;
    use api::proto::inspect::v1::migration_event::Event;

    #[test]
    fn a_stalled_migration_shows_why_it_has_ended() {
        let svg = draw(&stalled());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        for part in [
            "Migration m-1: the migration failed after 60.0 s",
            "Data, MiB",
            "Rates, MiB/s",
            "Downtime if it ended now, ms",
            "Throttling",
            "bandwidth limit",
            "1   at 50.0 s: guest is paused: not completed after 49 s",
            "2   at 58.0 s: migration is cancelled: stuck &lt;for> 8 s",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // Nothing was copied but memory, and "sent" is not known.
        assert!(!svg.contains("disks transferred") && !svg.contains("sent so far"));
        assert!(svg.contains("maximum downtime"));
        assert_eq!(svg.matches("<polyline").count(), 5);
    }

    #[test]
    fn a_migration_of_which_nothing_is_known_is_drawn_too() {
        let svg = draw(&Record::default());
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("</svg>"));
    }

    #[test]
    fn a_short_migration_has_a_curve_and_no_empty_panels() {
        let mut record = Record::default();
        let ended = MigrationEnded {
            data_processed: Some(20 << 20),
            ..MigrationEnded::default()
        };
        record.add(&event(3, Event::Ended(ended)));
        let svg = draw(&record);
        // What is left falls, and what is sent rises, from one point to another.
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(
            !svg.contains("Rates") && !svg.contains("Downtime if"),
            "{svg}"
        );
    }
}
