//! The timeline as a picture (SVG): a panel for each part of the start, each with a scale of its own, since a pod takes
//! milliseconds and a guest takes seconds.

use std::fmt::Write;

use super::{milliseconds, took};
use api::proto::inspect::v1::{Step, TimelineResponse};

const WIDTH: f64 = 900.0;
/// Where the bars begin; the names of the steps are left of it.
const LEFT: f64 = 150.0;
/// Where the bars end; longer texts beside them have the rest.
const RIGHT: f64 = 780.0;
const ROW: f64 = 22.0;
const TITLE: f64 = 34.0;

/// The parts, and the colour of their bars.
const PARTS: [(&str, &str); 3] = [
    ("pod", "#4c78a8"),
    ("domain", "#f58518"),
    ("guest", "#54a24b"),
];

/// Draws it.
#[must_use]
pub fn draw(timeline: &TimelineResponse) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for (part, colour) in PARTS {
        let steps: Vec<&Step> = timeline
            .steps
            .iter()
            .filter(|step| step.part == part)
            .collect();
        if !steps.is_empty() {
            y = draw_part(&mut body, y, part, colour, &steps);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" font-family=\"sans-serif\" font-size=\"12\">\
        <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws a panel whose top is at `y`, and returns where it ends.
fn draw_part(body: &mut String, mut y: f64, part: &str, colour: &str, steps: &[&Step]) -> f64 {
    let began = steps.iter().map(|step| step.began_micros).min();
    let began = began.unwrap_or_default();
    let ended = steps.iter().map(|step| end(step)).max();
    let length = milliseconds(ended.unwrap_or_default().saturating_sub(began)).max(0.001);
    let x =
        |micros: u64| LEFT + milliseconds(micros.saturating_sub(began)) / length * (RIGHT - LEFT);
    text(
        body,
        (10.0, y + 20.0),
        "start",
        &format!(
            "{part}: {length:.1} ms, from {:.1} ms after the launcher's beginning",
            milliseconds(began)
        ),
    );
    y += TITLE;
    for step in steps {
        let (from, to) = (x(step.began_micros), x(end(step)));
        text(body, (LEFT - 8.0, y + 14.0), "end", &step.name);
        // Writing to a text does not fail.
        let _ = writeln!(
            body,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>",
            y + 3.0,
            (to - from).max(2.0)
        );
        let label = match step.took_micros {
            Some(0) => format!("{:.1}", milliseconds(step.began_micros)),
            _ => took(step),
        };
        text(
            body,
            (to.max(from + 2.0) + 6.0, y + 14.0),
            "start",
            &format!("{label} ms"),
        );
        y += ROW;
    }
    y + 8.0
}

fn end(step: &Step) -> u64 {
    step.began_micros
        .saturating_add(step.took_micros.unwrap_or_default())
}

/// `anchor` is the end of the text that is at the point.
fn text(body: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::{example, step};
    use super::*;

    #[test]
    fn each_part_has_a_panel_and_each_step_a_bar() {
        let mut timeline = example();
        timeline
            .steps
            .push(step("domain", "a<b", 3_050_000, Some(1000)));
        let svg = draw(&timeline);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // One is the background.
        assert_eq!(svg.matches("<rect ").count(), 1 + timeline.steps.len());
        for part in [
            "pod: 45.7 ms",
            "domain: 5.0 ms, from 3046.0 ms",
            ">connect<",
            "a&lt;b",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("guest"));
    }

    #[test]
    fn nothing_is_no_reason_to_fail() {
        let svg = draw(&TimelineResponse::default());
        assert!(!svg.contains("NaN") && svg.contains("</svg>"));
    }
}
