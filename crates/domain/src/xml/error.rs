//! Why a document cannot be read.

use super::{MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS};

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not well-formed XML.
    #[error("line {line}: not well-formed XML: {reason}")]
    Malformed {
        /// Line of the document, counted from 1.
        line: usize,
        /// What the parser found.
        reason: String,
    },
    /// A known element or attribute holds a value of the wrong kind.
    #[error("line {line}: {path}: {reason}")]
    Value {
        /// Line of the document, counted from 1.
        line: usize,
        /// Where it stands, such as `/domain/devices/disk/driver/@queues`.
        path: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// The root element is another one.
    #[error("the root element is <{found}>, not <{expected}>")]
    Root {
        /// What the document should start with.
        expected: &'static str,
        /// What it starts with.
        found: String,
    },
    /// The document is longer than [`MAX_BYTES`].
    #[error("the document has {bytes} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The document is nested deeper than [`MAX_DEPTH`].
    #[error("line {line}: nested deeper than {MAX_DEPTH} elements")]
    TooDeep {
        /// Line of the document, counted from 1.
        line: usize,
    },
    /// The document has more than [`MAX_ELEMENTS`] elements.
    #[error("line {line}: more than {MAX_ELEMENTS} elements")]
    TooMany {
        /// Line of the document, counted from 1.
        line: usize,
    },
}

impl ReadError {
    /// The same error seen from the element `name` around it.
    pub(super) fn inside(mut self, name: &str) -> Self {
        if let Self::Value { path, .. } = &mut self {
            path.insert_str(0, name);
            path.insert(0, '/');
        }
        self
    }
}

/// A piece of the document for an error text, cut where it gets long.
pub(super) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 60;
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
