//! A YAML error in one line: the parser's own messages have several, with names of its options.

use serde_saphyr::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    /// From 1.
    pub line: u64,
    /// What is wrong there.
    pub message: String,
}

impl From<Error> for YamlError {
    fn from(error: Error) -> Self {
        let line = error.location().map_or(1, |location| location.line());
        let text = error.without_snippet().to_string();
        let located = text.rsplit_once(" at line ");
        let message = located.map_or(&*text, |(text, _)| text).replace('\n', " ");
        Self { line, message }
    }
}
