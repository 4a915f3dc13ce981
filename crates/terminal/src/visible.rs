//! Makes text from others (a guest, its agent, a sidecar, another launcher) safe for a terminal:
//! nothing in it moves the cursor, starts a line, or changes the display order.

/// One line: of the control characters, it keeps tabs only.
#[must_use]
pub fn line(text: &str) -> String {
    escape(text, |c| c == '\t', literal)
}

/// A document, which keeps its newlines.
#[must_use]
pub fn document(text: &str) -> String {
    escape(text, |c| matches!(c, '\t' | '\n'), literal)
}

/// JSON, which stays the same document: its strings alone have such characters.
#[must_use]
pub fn json(text: &str) -> String {
    escape(text, |c| c == '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool, escaped: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_kept(c) || !is_hidden(c) {
            shown.push(c);
        } else {
            shown.push_str(&escaped(c));
        }
    }
    shown
}

/// As in Rust: `\u{1b}`, `\n`.
fn literal(c: char) -> String {
    if c.is_ascii() {
        c.escape_default().collect()
    } else {
        c.escape_unicode().collect()
    }
}

/// Control characters, Unicode's bidirectional controls, and its separators of lines and
/// paragraphs.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_line_reaches_the_terminal_as_a_command() {
        let hostile = "a\u{1b}]0;t\u{7}\r\nb\u{9b}2J\u{7f}\u{202e}c\u{2066}\u{2028}d";
        let shown = line(hostile);
        assert_eq!(
            shown,
            r"a\u{1b}]0;t\u{7}\r\nb\u{9b}2J\u{7f}\u{202e}c\u{2066}\u{2028}d"
        );
        assert_eq!(line("Größe\t1 → 2 日本"), "Größe\t1 → 2 日本");
    }

    #[test]
    fn json_is_the_same_document_without_characters_that_a_terminal_obeys() {
        let hostile = "[\"\u{7f}a\u{9b}31m\u{85}\",\n \"\u{202e}Größe\u{2066}\u{2028}\"]\n";
        let expected = "[\"\\u007fa\\u009b31m\\u0085\",\n \"\\u202eGröße\\u2066\\u2028\"]\n";
        assert_eq!(json(hostile), expected);
    }

    #[test]
    fn a_document_keeps_its_lines() {
        assert_eq!(document("<a/>\n\t<b/>\r\n"), "<a/>\n\t<b/>\\r\n");
    }
}
