//! Why a document cannot be read.

use super::MAX_BYTES;
use crate::excerpt;

/// Longest text of a document in an error, in characters.
const MAX_QUOTED_CHARS: usize = 60;
/// Longest reason of the parser, which quotes tags in full.
const MAX_REASON_CHARS: usize = 200;

/// Why a document could not be read. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("line {line}: not well-formed XML: {reason}")]
    Malformed {
        /// Line of the document.
        line: usize,
        reason: String,
    },
    /// There is text before or after the root element.
    #[error(
        "line {line}: not well-formed XML: there is text outside of the root element: {text:?}"
    )]
    StrayText {
        /// Line of the document.
        line: usize,
        /// The text's first line, cut where it gets long.
        text: String,
    },
    /// A known element or attribute holds a value of the wrong kind.
    #[error("line {line}: {path}: {reason}")]
    Value {
        /// Line of the document.
        line: usize,
        /// Where it stands, such as `/domain/devices/disk/driver/@queues`.
        path: String,
        reason: ValueError,
    },
    /// The root element has another name.
    #[error("the root element is <{found}>, not <{expected}>")]
    Root {
        expected: &'static str,
        found: String,
    },
    /// The document declares a document type, which is the way to define entities. Only the
    /// [tree](super::tree) refuses it; the typed reader passes over it unread.
    #[error(
        "line {line}: a document type is declared; a domain needs none, and entities are not supported"
    )]
    DocumentType {
        /// Line of the document.
        line: usize,
    },
    /// The document is longer than [`MAX_BYTES`].
    #[error("the document has {bytes} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The document has more levels, elements or attributes than are read.
    #[error("line {line}: more than {most} {of}")]
    TooMuch {
        /// Line of the document.
        line: usize,
        most: usize,
        /// What there are too many of, such as `levels of nesting`.
        of: &'static str,
    },
}

/// Why a text is not a value of the wanted type. The text is cut where it gets long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a whole number, or out of range.
    #[error("{text:?} is not a whole number from {min} to {max}")]
    Number { text: String, min: i128, max: i128 },
    /// Not a truth value.
    #[error("{text:?} is neither true nor false")]
    Bool { text: String },
    #[error("{text:?} is not a time such as \"2026-01-02T03:04:05Z\"")]
    Time { text: String },
}

impl ReadError {
    /// The parser's `reason`, cut where it gets long.
    pub(super) fn malformed(line: usize, reason: impl std::fmt::Display) -> Self {
        Self::Malformed {
            line,
            reason: excerpt(&reason.to_string(), MAX_REASON_CHARS),
        }
    }

    /// Adds the element `name` around the error to its path.
    pub(super) fn inside(mut self, name: &str) -> Self {
        if let Self::Value { path, .. } = &mut self {
            path.insert_str(0, name);
            path.insert(0, '/');
        }
        self
    }
}

/// A piece of the document for an error text, cut where it gets long.
pub(crate) fn quoted(text: &str) -> String {
    excerpt(text, MAX_QUOTED_CHARS)
}
