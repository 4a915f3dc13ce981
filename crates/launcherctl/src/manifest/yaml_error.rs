//! A YAML error in one line: the parser's own messages have several, with names of its options.

use serde_saphyr::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    /// From 1.
    pub line: u64,
    /// What is wrong there.
    pub message: String,
    /// A repeated field; the rest of the text is readable.
    pub is_repeated_field: bool,
}

const TAB: &str = "tabs are not allowed for indentation in YAML; use spaces";
/// The parser's messages, with remedies.
const REMEDIES: [(&str, &str); 9] = [
    ("tabs disallowed", TAB),
    ("found a tab", TAB),
    ("cannot start with a tab", TAB),
    ("tab cannot be used as indentation", TAB),
    ("unclosed quote", "a quote is opened and not closed"),
    (
        "in multiline quoted scalar",
        "a quote that is opened above this line is not closed",
    ),
    (
        "while parsing a block mapping",
        "this line does not fit the one above it: is its indentation right, and has each field its colon?",
    ),
    (
        "while parsing a flow mapping",
        "this line comes before the { above it is closed: is a , or a } missing?",
    ),
    (
        "while parsing a flow sequence",
        "this line comes before the [ above it is closed: is a , or a ] missing?",
    ),
];

impl YamlError {
    /// From the parser's error and its text.
    pub fn new(error: Error, content: &str) -> Self {
        let mut line = error.location().map_or(1, |location| location.line());
        let plain = error.without_snippet();
        let text = plain.to_string();
        let located = text.rsplit_once(" at line ");
        let text = located.map_or(&*text, |(text, _)| text);
        let is_repeated_field = matches!(plain, Error::DuplicateMappingKey { .. });
        let remedy = REMEDIES.iter().find(|(part, _)| text.contains(part));
        let message = match remedy {
            Some((_, remedy)) => (*remedy).to_owned(),
            None if is_repeated_field => {
                let field = text.split_once(", set ").map_or(text, |(field, _)| field);
                let field = field.rsplit(": ").next().unwrap_or_default();
                format!("{field} is there twice; put what belongs together under one of them")
            }
            None => text.to_owned(),
        };
        if message == TAB {
            line = indented_by_tab(content, line).unwrap_or(line);
        }
        Self {
            line,
            message,
            is_repeated_field,
        }
    }
}

/// The first line from this one on with a tab in its indentation: the parser names the line of the
/// value above it.
fn indented_by_tab(content: &str, from: u64) -> Option<u64> {
    let is_indented_by_tab = |text: &str| text.trim_start_matches(' ').starts_with('\t');
    let mut lines = (1..).zip(content.lines());
    let found = lines.find(|(line, text)| *line >= from && is_indented_by_tab(text));
    found.map(|(line, _)| line)
}
