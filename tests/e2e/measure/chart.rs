//! Curves as a picture (SVG).

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 80.0;
const TITLE: f64 = 30.0;
const COLOURS: [&str; 5] = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2"];

/// One panel: curves with the same unit.
pub struct Panel {
    pub title: String,
    /// Name, and points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Draws the panels below each other; each axis begins at 0.
pub fn draw(x_title: &str, panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut top = 0.0;
    for panel in panels {
        draw_panel(&mut body, top, x_title, panel);
        top += TITLE + HEIGHT + 40.0;
    }
    let width = LEFT + WIDTH + 40.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" font-family=\"sans-serif\" font-size=\"12\">\
        <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn draw_panel(body: &mut String, top: f64, x_title: &str, panel: &Panel) {
    let points = || panel.curves.iter().flat_map(|(_, points)| points);
    let x_max = points().map(|(x, _)| *x).fold(0.001, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(0.001, f64::max) * 1.1;
    let at = |(x, y): (f64, f64)| {
        (
            LEFT + x / x_max * WIDTH,
            top + TITLE + HEIGHT - y / y_max * HEIGHT,
        )
    };
    text(body, LEFT, top + 20.0, "start", &panel.title, "black");
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let (x, y) = at((x_max * part, y_max * part));
        let bottom = top + TITLE + HEIGHT;
        let _ = writeln!(
            body,
            "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#ddd\"/>",
            LEFT + WIDTH
        );
        text(
            body,
            LEFT - 6.0,
            y + 4.0,
            "end",
            &short(y_max * part),
            "black",
        );
        text(
            body,
            x,
            bottom + 16.0,
            "middle",
            &short(x_max * part),
            "black",
        );
    }
    text(
        body,
        LEFT + WIDTH,
        top + TITLE + HEIGHT + 32.0,
        "end",
        x_title,
        "black",
    );
    for (index, (name, points)) in panel.curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let path: Vec<String> = points
            .iter()
            .map(|point| {
                let (x, y) = at(*point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let _ = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        let x = LEFT + 260.0 + index as f64 * 170.0;
        text(body, x, top + 20.0, "start", name, colour);
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, text: &str, colour: &str) {
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
    );
}

#[test]
fn a_chart_has_a_curve_for_each_series() {
    let curve = |name: &str| (name.to_owned(), vec![(0.0, 1.0), (1.0, 2.0)]);
    let panel = Panel {
        title: "RSS".to_owned(),
        curves: vec![curve("a"), curve("b")],
    };
    let svg = draw(
        "minutes",
        &[
            panel,
            Panel {
                title: "empty".to_owned(),
                curves: Vec::new(),
            },
        ],
    );
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(svg.contains(">RSS<") && !svg.contains("NaN"));
}
