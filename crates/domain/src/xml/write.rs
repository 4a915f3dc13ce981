//! Writing: a document as indented text.

use super::element::{Children, XmlElement};
use super::value::Value;

/// Indented XML text under construction.
#[derive(Debug, Default)]
pub struct Out {
    text: String,
    depth: usize,
    /// The start tag of the innermost element still lacks its `>`.
    open: bool,
}

/// The document as indented XML text.
#[must_use]
pub fn to_string<T: XmlElement>(root: &str, document: &T) -> String {
    let mut out = Out {
        text: String::with_capacity(2 << 10),
        ..Out::default()
    };
    Children::write(document, root, &mut out);
    out.text.push('\n');
    out.text
}

impl Out {
    /// An attribute of the element opened last.
    pub fn attribute(&mut self, name: &str, value: &impl Value) {
        self.attribute_start(name);
        value.write(&mut self.text);
        self.text.push('"');
    }

    /// An attribute whose value needs no escaping.
    pub(super) fn raw_attribute(&mut self, name: &str, value: &str) {
        self.attribute_start(name);
        self.text.push_str(value);
        self.text.push('"');
    }

    fn attribute_start(&mut self, name: &str) {
        self.text.push(' ');
        self.text.push_str(name);
        self.text.push_str("=\"");
    }

    /// `<name>value</name>`.
    pub fn leaf(&mut self, name: &str, value: &impl Value) {
        self.start(name);
        self.text(value);
        self.end(name, false);
    }

    /// Text content of the element opened last; nothing is written for an empty value.
    pub fn text(&mut self, value: &impl Value) {
        let (before, open) = (self.text.len(), self.open);
        self.close_tag();
        let start = self.text.len();
        value.write(&mut self.text);
        if self.text.len() == start {
            self.text.truncate(before);
            self.open = open;
        }
    }

    /// Opens an element.
    pub fn start(&mut self, name: &str) {
        self.close_tag();
        if !self.text.is_empty() {
            self.indent();
        }
        self.text.push('<');
        self.text.push_str(name);
        self.open = true;
        self.depth += 1;
    }

    /// Closes the element opened last; `children`: whether it has elements inside.
    pub fn end(&mut self, name: &str, children: bool) {
        self.depth -= 1;
        if self.open {
            self.text.push_str("/>");
            self.open = false;
            return;
        }
        if children {
            self.indent();
        }
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    fn close_tag(&mut self) {
        if std::mem::take(&mut self.open) {
            self.text.push('>');
        }
    }

    fn indent(&mut self) {
        self.text.push('\n');
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
    }
}

/// Escapes for both attributes and text; what XML 1.0 cannot hold becomes U+FFFD, as Go does.
pub(super) fn escape(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let (replacement, length) = match byte {
            b'<' => ("&lt;", 1),
            b'>' => ("&gt;", 1),
            b'&' => ("&amp;", 1),
            b'"' => ("&#34;", 1),
            b'\'' => ("&#39;", 1),
            b'\t' => ("&#x9;", 1),
            b'\n' => ("&#xA;", 1),
            b'\r' => ("&#xD;", 1),
            0..b' ' => ("\u{fffd}", 1),
            // U+FFFE and U+FFFF.
            0xef if matches!(bytes.get(at..), Some([_, 0xbf, 0xbe | 0xbf, ..])) => ("\u{fffd}", 3),
            _ => continue,
        };
        out.push_str(raw.get(done..at).unwrap_or_default());
        out.push_str(replacement);
        done = at + length;
    }
    out.push_str(raw.get(done..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(raw: &str) -> String {
        let mut out = String::new();
        escape(raw, &mut out);
        out
    }

    #[test]
    fn what_xml_reserves_is_escaped() {
        assert_eq!(escaped("a<b>&\"c'"), "a&lt;b&gt;&amp;&#34;c&#39;");
        assert_eq!(escaped("\t\r\n"), "&#x9;&#xD;&#xA;");
        assert_eq!(escaped("plain"), "plain");
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("a\0b\u{1f}c\u{fffe}\u{ffff}d"),
            "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}d"
        );
    }

    #[test]
    fn neighbours_of_the_unwritable_stay() {
        let text = "\u{fffd}\u{fff0}\u{10000}ÿ\u{7f}é𝄞";
        assert_eq!(escaped(text), text);
    }
}
