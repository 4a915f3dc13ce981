//! Detects a text on a guest's console.

/// Searches for a text in a stream that arrives in pieces.
#[derive(Debug)]
pub struct Until {
    text: Option<Vec<u8>>,
    tail: Vec<u8>,
}

impl Until {
    /// Searches for this text, if any.
    #[must_use]
    pub fn new(text: Option<&str>) -> Self {
        Self {
            text: text.map(|text| text.as_bytes().to_vec()),
            tail: Vec::new(),
        }
    }

    /// Whether there is a text that has not appeared yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.text.is_some()
    }

    /// True once, for the piece that completes the text.
    pub fn seen_in(&mut self, piece: &[u8]) -> bool {
        let Some(text) = &self.text else { return false };
        self.tail.extend_from_slice(piece);
        let mut windows = self.tail.windows(text.len().max(1));
        if windows.any(|window| window == text) {
            self.text = None;
            return true;
        }
        let keep = self.tail.len().saturating_sub(text.len());
        self.tail.drain(..keep);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_arrives_in_pieces_is_seen_once() {
        let mut until = Until::new(Some("guest is up"));
        assert!(!until.seen_in(b"\r\nguest i"));
        assert!(until.is_waiting());
        assert!(until.seen_in(b"s up\r\n"));
        assert!(!until.seen_in(b"guest is up"));
        assert!(!until.is_waiting());
    }
}
