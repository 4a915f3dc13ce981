//! Makes text from others (a guest, its agent, a sidecar, another launcher) safe for a terminal:
//! nothing in it moves the cursor, starts a line, or changes the display order.

/// Longer words of its digits are base64.
const MIN_BASE64_LENGTH: usize = 60;

/// One line: of the control characters, it keeps tabs only.
#[must_use]
pub fn line(text: &str) -> String {
    escape(text, |c| c == '\t')
}

/// A document, which keeps its newlines.
#[must_use]
pub fn document(text: &str) -> String {
    escape(text, |c| matches!(c, '\t' | '\n'))
}

/// One line of at most `width` characters, without base64.
#[must_use]
pub fn short(text: &str, width: usize) -> String {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let is_base64 = |word: &str| word.trim_end_matches(|c| !is_digit(c)).len() >= MIN_BASE64_LENGTH;
    let words = text.split_inclusive(|c| !is_digit(c));
    let words = words.map(|word| if is_base64(word) { "[base64] " } else { word });
    let shown = line(words.collect::<String>().trim_end());
    match shown.char_indices().nth(width) {
        Some(_) => shown
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        None => shown,
    }
}

/// In the form of Rust literals: `\u{1b}`, `\n`.
fn escape(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_kept(c) || !(c.is_control() || changes_order(c)) {
            shown.push(c);
        } else if c.is_ascii() {
            shown.extend(c.escape_default());
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

/// Unicode's bidirectional controls, and its separators of lines and paragraphs.
fn changes_order(c: char) -> bool {
    matches!(
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
    fn a_short_line_has_no_base64() {
        let key = "AAAAB3NzaC1yc2EAAAADAQABAAABgQC+x/".repeat(3);
        assert_eq!(short(&format!("key {key}== end"), 99), "key [base64] end");
        assert_eq!(short("/var/lib/x-1 größer", 15), "/var/lib/x-1 g…");
        assert_eq!(short("12345", 5), "12345");
    }

    #[test]
    fn a_document_keeps_its_lines() {
        assert_eq!(document("<a/>\n\t<b/>\r\n"), "<a/>\n\t<b/>\\r\n");
    }
}
