//! What both readers of XML need to know about the text: lines, and the characters that XML can
//! hold.

use super::{MAX_BYTES, ReadError};

/// Refuses a text that is too long or has characters that XML 1.0 cannot hold. References to such
/// characters are refused where they stand.
pub(super) fn check(text: &str) -> Result<(), ReadError> {
    if text.len() > MAX_BYTES {
        return Err(ReadError::TooLarge { bytes: text.len() });
    }
    match first_invalid(text) {
        None => Ok(()),
        Some((at, found)) => Err(ReadError::Malformed {
            line: line(text, at),
            reason: not_xml(found),
        }),
    }
}

/// The line of a position in bytes, counted from 1.
pub(super) fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The first character that XML 1.0 cannot hold, and where it is.
pub(super) fn first_invalid(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|&(_, c)| !is_xml(c))
}

/// Why such a character is refused.
pub(super) fn not_xml(c: char) -> String {
    format!("the character U+{:04X} cannot be in XML", u32::from(c))
}

/// Whether XML 1.0 can hold the character.
pub(super) const fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}
