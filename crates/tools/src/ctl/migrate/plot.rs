//! A migration as a picture (SVG): what is left, how fast it goes and how fast the guest undoes it, and the downtime that
//! QEMU expects, over one axis of time; what was decided is marked in all of them.

use std::fmt::Write;

use super::record::{At, Record, decision, guest_writes, measured_downtime};
use crate::ctl::refusal;
use api::proto::inspect::v1::MigrationSample;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 870.0;
const PANEL_HEIGHT: f64 = 150.0;
const PANEL_TITLE: f64 = 34.0;
const LINE_HEIGHT: f64 = 18.0;
/// Points of a curve up to which each has a dot.
const MAX_DOTS: usize = 20;
const POST_COPY: &str = "#e8f3e6";
const PAUSED: &str = "#eeeeee";
const SHADES: [(&str, &str); 2] = [
    (
        POST_COPY,
        "the guest runs on the target, and its memory follows",
    ),
    (PAUSED, "the guest is paused"),
];
const MIB: f64 = 1024.0 * 1024.0;

const BLUE: &str = "#4c78a8";
const ORANGE: &str = "#f58518";
const GREEN: &str = "#54a24b";
const RED: &str = "#e45756";

/// A curve, and how its values are got; a limit has none.
struct Curve {
    name: &'static str,
    colour: &'static str,
    value: fn(&MigrationSample) -> Option<f64>,
}

/// Curves with the same unit.
struct Panel {
    title: &'static str,
    curves: &'static [Curve],
    /// A line that is the same all the time, with its name.
    limit: Option<(&'static str, f64)>,
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn mib(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / MIB)
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

const REMAINING: &[Curve] = &[
    Curve {
        name: "left to transfer",
        colour: BLUE,
        value: |it| mib(it.data_remaining),
    },
    Curve {
        name: "sent so far",
        colour: GREEN,
        value: |it| mib(it.data_processed),
    },
];
const RATES: &[Curve] = &[
    Curve {
        name: "memory transferred",
        colour: BLUE,
        value: |it| mib(it.memory_bandwidth),
    },
    Curve {
        name: "memory written by the guest",
        colour: RED,
        value: |it| mib(guest_writes(it)),
    },
    Curve {
        name: "disks transferred",
        colour: GREEN,
        value: |it| mib(it.disk_bandwidth.filter(|rate| *rate > 0)),
    },
];
const DOWNTIME: &[Curve] = &[Curve {
    name: "expected downtime",
    colour: ORANGE,
    value: |it| number(measured_downtime(it)),
}];
const THROTTLE: &[Curve] = &[Curve {
    name: "auto-converge slows the guest down",
    colour: RED,
    value: |it| number(it.throttle_percent),
}];

/// Draws the migration, whether it has ended or not.
#[must_use]
pub fn draw(record: &Record) -> String {
    let mut body = String::new();
    let summary = record.summary();
    // A line has no place for what to do.
    let (summary, _) = refusal::split_remedy(&summary);
    let heading = format!("Migration {}: {summary}", record.began.uid);
    text(&mut body, (10.0, 22.0), "start", "black", &heading);
    let time = Scale::new(last_moment(record), (LEFT, RIGHT));
    let mut y = 32.0;
    for panel in panels(record) {
        draw_panel(&mut body, y, &panel, record, &time);
        y += PANEL_TITLE + PANEL_HEIGHT + 26.0;
    }
    text(
        &mut body,
        (RIGHT, y + 6.0),
        "end",
        "black",
        "seconds from the beginning",
    );
    y += 12.0;
    for (colour, what) in SHADES {
        if record
            .samples
            .iter()
            .any(|it| shade(&it.what) == Some(colour))
        {
            y += LINE_HEIGHT;
            let _ = writeln!(
                body,
                "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"14\" height=\"12\" fill=\"{colour}\" stroke=\"#999\"/>",
                y - 11.0
            );
            text(&mut body, (LEFT + 22.0, y), "start", "black", what);
        }
    }
    for (number, At { seconds, what }) in record.decisions.iter().enumerate() {
        y += LINE_HEIGHT;
        let line = format!("{}   at {seconds:.1} s: {}", number + 1, decision(what));
        text(&mut body, (LEFT, y), "start", "black", &line);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\
        <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        y + 16.0
    )
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn panels(record: &Record) -> Vec<Panel> {
    let began = &record.began;
    let limit = |value: u64, name| (value > 0).then_some((name, value as f64));
    let mut panels = vec![
        Panel {
            title: "Data, MiB",
            curves: REMAINING,
            limit: None,
        },
        Panel {
            title: "Rates, MiB/s",
            curves: RATES,
            limit: limit(began.bandwidth_limit, "bandwidth limit")
                .map(|(name, rate)| (name, rate / MIB)),
        },
        Panel {
            title: "Downtime if it ended now, ms",
            curves: DOWNTIME,
            limit: limit(began.max_downtime_ms, "maximum downtime"),
        },
    ];
    let has_values = |panel: &Panel| {
        let mut samples = record.samples.iter();
        samples.any(|at| panel.curves.iter().any(|it| (it.value)(&at.what).is_some()))
    };
    // A short migration has none of some.
    panels.retain(has_values);
    if record
        .samples
        .iter()
        .any(|it| it.what.throttle_percent.unwrap_or(0) > 0)
    {
        panels.push(Panel {
            title: "Throttling, % of the guest's CPU time",
            curves: THROTTLE,
            limit: None,
        });
    }
    panels
}

fn last_moment(record: &Record) -> f64 {
    let samples = record.samples.iter().map(|it| it.seconds);
    let decisions = record.decisions.iter().map(|it| it.seconds);
    let end = record.ended.iter().map(|it| it.seconds);
    samples.chain(decisions).chain(end).fold(0.1, f64::max)
}

/// An axis from 0, with round numbers on it.
struct Scale {
    max: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(max: f64, (from, to): (f64, f64)) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let magnitude = 10_f64.powf((max / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * magnitude)
            .find(|step| max / step <= 5.0)
            .unwrap_or(max);
        Self {
            max,
            step,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + value / self.max * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        // At most five by the choice of the step.
        (0_u8..=5)
            .map(|index| f64::from(index) * self.step)
            .filter(|value| *value <= self.max * 1.001)
    }

    fn label(&self, value: f64) -> String {
        let decimals = if self.step >= 1.0 {
            0
        } else if self.step >= 0.1 {
            1
        } else {
            2
        };
        format!("{value:.decimals$}")
    }
}

fn draw_panel(body: &mut String, top: f64, panel: &Panel, record: &Record, time: &Scale) {
    let (upper, lower) = (top + PANEL_TITLE, top + PANEL_TITLE + PANEL_HEIGHT);
    let values = panel.curves.iter().flat_map(|curve| {
        record
            .samples
            .iter()
            .filter_map(|sample| (curve.value)(&sample.what))
    });
    let largest = values.fold(0.0, f64::max);
    // A limit that is far off would leave the curves flat.
    let limit = panel
        .limit
        .filter(|(_, limit)| largest == 0.0 || *limit <= largest * 4.0);
    let values = Scale::new(
        limit.map_or(largest, |(_, limit)| limit.max(largest)) * 1.05,
        (lower, upper),
    );
    text(body, (10.0, top + 24.0), "start", "black", panel.title);
    shade_pauses(body, record, time, (upper, lower));
    draw_axes(body, &values, time, (upper, lower));
    let mut legend = 300.0;
    for curve in panel.curves {
        let points: Vec<(f64, f64)> = record
            .samples
            .iter()
            .filter_map(|sample| {
                let value = (curve.value)(&sample.what)?;
                Some((time.at(sample.seconds), values.at(value)))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        let colour = curve.colour;
        draw_curve(body, colour, &points);
        text(body, (legend, top + 24.0), "start", colour, curve.name);
        legend += 190.0;
    }
    if let Some((name, limit)) = limit {
        let y = values.at(limit);
        let _ = writeln!(
            body,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"black\" stroke-dasharray=\"6 4\"/>"
        );
        text(body, (LEFT + 6.0, y - 4.0), "start", "black", name);
    }
    draw_decisions(body, record, time, (upper, lower));
}

/// A line through the points; where they are few, they are shown, too.
fn draw_curve(body: &mut String, colour: &str, points: &[(f64, f64)]) {
    let corners: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        body,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        corners.join(" ")
    );
    if points.len() <= MAX_DOTS {
        for (x, y) in points {
            let _ = writeln!(
                body,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
    }
}

fn draw_axes(body: &mut String, values: &Scale, time: &Scale, (upper, lower): (f64, f64)) {
    for value in values.ticks() {
        let y = values.at(value);
        let _ = writeln!(body, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>");
        text(
            body,
            (LEFT - 6.0, y + 4.0),
            "end",
            "black",
            &values.label(value),
        );
    }
    for moment in time.ticks() {
        text(
            body,
            (time.at(moment), lower + 16.0),
            "middle",
            "black",
            &time.label(moment),
        );
    }
    let _ = writeln!(
        body,
        "<path d=\"M{LEFT} {upper:.1}V{lower:.1}H{RIGHT}\" stroke=\"black\" fill=\"none\"/>"
    );
}

/// The background while the guest does not run on the source.
fn shade(sample: &MigrationSample) -> Option<&'static str> {
    match sample.mode.as_str() {
        "PostCopy" => Some(POST_COPY),
        _ if sample.is_paused => Some(PAUSED),
        _ => None,
    }
}

/// Marks the times at which the guest stood still, or ran on the target already.
fn shade_pauses(body: &mut String, record: &Record, time: &Scale, (upper, lower): (f64, f64)) {
    for pair in record.samples.windows(2) {
        let [sample, next] = pair else { continue };
        let Some(colour) = shade(&sample.what) else {
            continue;
        };
        let (from, to) = (time.at(sample.seconds), time.at(next.seconds));
        let _ = writeln!(
            body,
            "<rect x=\"{from:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            to - from,
            lower - upper
        );
    }
}

/// A line for each decision; its number is explained below the panels.
fn draw_decisions(body: &mut String, record: &Record, time: &Scale, (upper, lower): (f64, f64)) {
    for (number, decision) in record.decisions.iter().enumerate() {
        let x = time.at(decision.seconds);
        let _ = writeln!(
            body,
            "<path d=\"M{x:.1} {upper:.1}V{lower:.1}\" stroke=\"{ORANGE}\" stroke-dasharray=\"3 3\"/>"
        );
        text(
            body,
            (x + 3.0, upper + 10.0),
            "start",
            ORANGE,
            &(number + 1).to_string(),
        );
    }
}

/// `anchor` is the end of the text that is at the point.
fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{event, stalled};
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
            "seconds from the beginning",
            "1   at 50.0 s: guest is paused: not completed after 49 s",
            "2   at 58.0 s: migration is cancelled: stuck &lt;for> 8 s",
            "the guest is paused</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        // Nothing was copied but memory, and "sent" is not known.
        assert!(!svg.contains("disks transferred") && !svg.contains("sent so far"));
        // A maximum of 300 ms is far below 6 s, and is drawn.
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
        assert_eq!(
            (
                svg.matches("<polyline").count(),
                svg.matches("<circle").count()
            ),
            (2, 4)
        );
        assert!(
            !svg.contains("Rates") && !svg.contains("Downtime if"),
            "{svg}"
        );
    }

    #[test]
    fn axes_have_round_numbers() {
        let ticks = |max| Scale::new(max, (0.0, 1.0)).ticks().collect::<Vec<_>>();
        assert_eq!(ticks(60.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(ticks(4.4), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(0.0).len(), 6);
    }
}
