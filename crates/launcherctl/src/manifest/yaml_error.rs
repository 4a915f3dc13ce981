//! A YAML error in one line: the parser's own messages have several, with names of its options.

use serde_saphyr::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    /// From 1.
    pub line: u64,
    /// What is wrong there.
    pub message: String,
    /// A repeated field. The rest of the text is readable: see
    /// [`Repeated`](super::documents::Repeated).
    pub is_repeated_field: bool,
}

/// The parser's messages about a tab.
const TABS: [&str; 4] = [
    "tabs disallowed",
    "found a tab",
    "cannot start with a tab",
    "tab cannot be used as indentation",
];
const TAB_REMEDY: &str = "tabs are not allowed for indentation in YAML; use spaces";
/// The parser's messages, with remedies.
const REMEDIES: [(&str, &str); 5] = [
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
    #[must_use]
    pub fn new(error: Error, content: &str) -> Self {
        let line = error.location().map_or(1, |location| location.line());
        let plain = error.without_snippet();
        let text = plain.to_string();
        let text = match text.rsplit_once(" at line ") {
            Some((text, _)) => text.to_owned(),
            None => text,
        };
        let is_repeated_field = matches!(plain, Error::DuplicateMappingKey { .. });
        let remedy = REMEDIES.iter().find(|(part, _)| text.contains(part));
        let is_tab = TABS.iter().any(|part| text.contains(part));
        let message = match remedy {
            _ if is_tab => TAB_REMEDY.to_owned(),
            Some((_, remedy)) => (*remedy).to_owned(),
            None if is_repeated_field => {
                let field = text.split_once(", set ").map_or(&*text, |(field, _)| field);
                let field = field.rsplit(": ").next().unwrap_or_default();
                format!("{field} is there twice; put what belongs together under one of them")
            }
            None => text,
        };
        let line = match is_tab {
            true => indented_by_tab(content, line).unwrap_or(line),
            false => line,
        };
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
    let mut lines = (1..).zip(content.lines()).filter(|(line, _)| *line >= from);
    let is_indented_by_tab = |text: &str| {
        let mut indentation = text.chars().take_while(|c| c.is_whitespace());
        indentation.any(|c| c == '\t')
    };
    let (line, _) = lines.find(|(_, text)| is_indented_by_tab(text))?;
    Some(line)
}
