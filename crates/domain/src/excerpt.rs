//! Text of others in errors and logs.

/// The start of a text, at most `max_chars` characters; what is left out is an ellipsis.
#[must_use]
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let end = text.char_indices().nth(max_chars).map(|(end, _)| end);
    match end.and_then(|end| text.get(..end)) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(excerpt("éé", 2), "éé");
        assert_eq!(excerpt("ééé", 2), "éé…");
        assert_eq!(excerpt("", 0), "");
    }
}
