//! Writing: indented text.

use super::value::Value;

/// XML text under construction.
#[derive(Debug, Default)]
pub struct Out {
    text: String,
    depth: usize,
    /// The start tag of the innermost element still lacks its `>`.
    open: bool,
}

impl Out {
    pub(super) fn new() -> Self {
        Self {
            text: String::with_capacity(2 << 10),
            ..Self::default()
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }

    /// An attribute of the element opened last.
    pub fn attribute(&mut self, name: &str, value: &impl Value) {
        self.text.push(' ');
        self.text.push_str(name);
        self.text.push_str("=\"");
        value.write(&mut self.text);
        self.text.push('"');
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
