//! Text of others in errors and logs.

/// Returns the first `max_chars` characters of a text, with an ellipsis if there are more.
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
