//! Pictures (SVG) of what took time: bars, and curves with round numbers on their axes.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
/// Where bars and curves begin; names and values are left of it.
const LEFT: f64 = 150.0;
/// Where they end; longer texts beside bars have the rest.
const RIGHT: f64 = 780.0;
const LINE_HEIGHT: f64 = 22.0;
const PANEL_HEIGHT: f64 = 150.0;
const COLOURS: [&str; 3] = ["#4c78a8", "#e45756", "#54a24b"];

/// A picture that grows downwards.
#[derive(Debug, Default)]
pub struct Picture {
    body: String,
    /// The baseline of the last text.
    y: f64,
}

/// A span of time, in any unit.
#[derive(Debug)]
pub struct Bar<'a> {
    pub name: &'a str,
    pub from: f64,
    pub to: f64,
    /// Stands right of the bar.
    pub label: String,
}

/// A name, and points of time and value, each after the one before.
pub type Curve = (&'static str, Vec<(f64, f64)>);

/// Curves of one unit.
#[derive(Debug)]
pub struct Panel {
    pub title: &'static str,
    pub curves: Vec<Curve>,
    /// A value that is the same all the time, with its name.
    pub limit: Option<(&'static str, f64)>,
}

impl Picture {
    /// A line of text.
    pub fn line(&mut self, text: &str) {
        self.y += LINE_HEIGHT;
        self.text((10.0, self.y), "start", "black", text);
    }

    /// A row for each bar.
    pub fn bars(&mut self, bars: &[Bar<'_>]) {
        let began = bars.iter().map(|bar| bar.from).fold(f64::MAX, f64::min);
        let ended = bars.iter().map(|bar| bar.to).fold(began, f64::max);
        let x = |at: f64| LEFT + (at - began) / (ended - began).max(0.001) * (RIGHT - LEFT);
        for bar in bars {
            self.y += LINE_HEIGHT;
            let (y, from) = (self.y, x(bar.from));
            let to = x(bar.to).max(from + 2.0);
            self.text((LEFT - 8.0, y), "end", "black", bar.name);
            self.text((to + 6.0, y), "start", "black", &bar.label);
            self.element(format_args!(
                "rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{}\"",
                y - 11.0,
                to - from,
                COLOURS[0]
            ));
        }
        self.y += 12.0;
    }

    /// The panel's curves from time 0 to `end`, with lines at the times of `marks`, which are numbered from 1.
    pub fn curves(&mut self, panel: &Panel, end: f64, marks: &[f64]) {
        self.line(panel.title);
        let points = panel.curves.iter().flat_map(|(_, points)| points);
        let largest = points.fold(0.0, |largest: f64, (_, value)| largest.max(*value));
        // A limit that is far off would leave the curves flat.
        let limit = panel.limit.filter(|(_, limit)| *limit <= largest * 4.0);
        let max = limit.map_or(largest, |(_, limit)| limit.max(largest)) * 1.05;
        let (upper, lower) = (self.y + 10.0, self.y + 10.0 + PANEL_HEIGHT);
        let x = |at: f64| LEFT + at / end * (RIGHT - LEFT);
        let y = |value: f64| lower - value / max.max(0.001) * PANEL_HEIGHT;
        for value in ticks(max) {
            self.path(format_args!("M{LEFT} {:.1}H{RIGHT}", y(value)), "#ddd", "");
            self.text((LEFT - 6.0, y(value) + 4.0), "end", "black", &label(value));
        }
        for at in ticks(end) {
            self.text((x(at), lower + 16.0), "middle", "black", &label(at));
        }
        let mut legend = 330.0;
        for ((name, points), colour) in panel.curves.iter().zip(COLOURS) {
            let corners = points.iter().map(|(at, value)| (x(*at), y(*value)));
            let corners = corners.map(|(x, y)| format!("{x:.1},{y:.1} "));
            self.element(format_args!(
                "polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"",
                corners.collect::<String>().trim_end()
            ));
            self.text((legend, upper - 10.0), "start", colour, name);
            legend += 190.0;
        }
        if let Some((name, limit)) = limit {
            self.path(
                format_args!("M{LEFT} {:.1}H{RIGHT}", y(limit)),
                "black",
                "6 4",
            );
            self.text((LEFT + 6.0, y(limit) - 4.0), "start", "black", name);
        }
        for (index, at) in marks.iter().enumerate() {
            self.path(
                format_args!("M{:.1} {upper}V{lower}", x(*at)),
                "black",
                "3 3",
            );
            let number = index.saturating_add(1).to_string();
            self.text((x(*at) + 3.0, upper + 10.0), "start", "black", &number);
        }
        self.y = lower + 16.0;
    }

    /// The file.
    #[must_use]
    pub fn finish(self) -> String {
        let (body, height) = (self.body, self.y + 16.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\
            <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a text does not fail.
        let _ = writeln!(self.body, "<{element}/>");
    }

    fn path(&mut self, path: std::fmt::Arguments<'_>, colour: &str, dashes: &str) {
        self.element(format_args!(
            "path d=\"{path}\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\""
        ));
    }

    /// `anchor` is the end of the text that is at the point.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, colour: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        );
    }
}

/// At most six round numbers from 0 to `max`.
fn ticks(max: f64) -> impl Iterator<Item = f64> {
    let magnitude = 10_f64.powf((max / 5.0).log10().floor());
    let mut steps = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter();
    let step = steps.find(|step| max / step <= 5.0).unwrap_or(max);
    (0_u8..=5)
        .map(move |index| f64::from(index) * step)
        .take_while(move |value| *value <= max * 1.001)
}

fn label(value: f64) -> String {
    ((value * 100.0).round() / 100.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let ticks = |max| ticks(max).map(label).collect::<Vec<_>>();
        assert_eq!(ticks(60.0), ["0", "20", "40", "60"]);
        assert_eq!(ticks(4.4), ["0", "1", "2", "3", "4"]);
        assert_eq!(ticks(0.9), ["0", "0.2", "0.4", "0.6", "0.8"]);
    }

    #[test]
    fn bars_and_curves_have_their_names_and_no_text_becomes_an_element() {
        let mut picture = Picture::default();
        picture.line("a<b");
        picture.bars(&[Bar {
            name: "connect",
            from: 1.0,
            to: 1.0,
            label: "1 ms".to_owned(),
        }]);
        let limit = Some(("maximum", 5.0));
        let curves = vec![("rate", vec![(0.0, 1.0), (2.0, 4.0)])];
        let title = "Rates";
        picture.curves(
            &Panel {
                title,
                curves,
                limit,
            },
            2.0,
            &[1.0],
        );
        let far = Some(("far off", 50.0));
        let curves = vec![("nothing", vec![(0.0, 0.0)])];
        picture.curves(
            &Panel {
                title,
                curves,
                limit: far,
            },
            2.0,
            &[],
        );
        let svg = picture.finish();
        for part in [
            "a&lt;b",
            ">connect<",
            ">1 ms<",
            ">rate<",
            ">maximum<",
            ">1</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("far off"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
