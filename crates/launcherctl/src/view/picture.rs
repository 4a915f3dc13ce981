//! A picture (SVG) of what took time: bars.

use std::fmt::Write;
use std::ops::Range;

const WIDTH: f64 = 900.0;
/// Where bars begin; names and values are left of it.
const LEFT: f64 = 150.0;
/// Where they end; longer texts beside bars use the rest.
const RIGHT: f64 = 780.0;
const LINE_HEIGHT: f64 = 22.0;
const COLOUR: &str = "#4c78a8";

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
    /// Right of the bar.
    pub label: String,
}

impl Picture {
    /// Draws a row for each bar of `span`, below a title.
    pub fn panel(&mut self, title: &str, span: Range<f64>, bars: &[Bar<'_>]) {
        self.y += LINE_HEIGHT;
        self.text((10.0, self.y), "start", title);
        let scale = (RIGHT - LEFT) / (span.end - span.start).max(0.001);
        let x = |at: f64| LEFT + (at - span.start) * scale;
        for bar in bars {
            self.y += LINE_HEIGHT;
            let (y, from) = (self.y, x(bar.from));
            let to = x(bar.to).max(from + 2.0);
            self.text((LEFT - 8.0, y), "end", bar.name);
            self.text((to + 6.0, y), "start", &bar.label);
            // Writing to a text does not fail.
            let _ = writeln!(
                self.body,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{COLOUR}\"/>",
                y - 11.0,
                to - from
            );
        }
        self.y += 12.0;
    }

    /// The file's text.
    pub fn finish(self) -> String {
        let (body, height) = (self.body, self.y + 16.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\
            <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }

    /// `anchor` is the end of the text at the point.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_names_and_no_text_becomes_an_element() {
        let mut picture = Picture::default();
        let bar = Bar {
            name: "connect",
            from: 1.0,
            to: 1.0,
            label: "1 ms".to_owned(),
        };
        picture.panel("a<b", 1.0..1.0, &[bar]);
        let svg = picture.finish();
        for part in ["a&lt;b", ">connect<", ">1 ms<"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
