//! The changes found by a comparison, as the log and the report show them.

use std::fmt;
use std::ops::ControlFlow;

use domain::excerpt;
use serde::{Deserialize, Serialize};

/// Limit of the changes that are kept. The comparison stops when it is reached.
pub const MAX_CHANGES: usize = 200;
/// Limit of the changes in a log line.
const MAX_LOGGED_CHANGES: usize = 20;
/// Limit of a shown value or name, in characters.
const MAX_VALUE_CHARS: usize = 80;

/// One difference between two documents. The path starts below the root element. Brackets tell
/// elements of one name apart: `devices/disk[vda]/driver@cache`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Added {
        path: String,
        value: String,
    },
    Removed {
        path: String,
    },
    /// An attribute or a text has another value.
    Changed {
        path: String,
        before: String,
        after: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { path, value } if value.is_empty() => write!(f, "+ {path}"),
            Self::Added { path, value } => write!(f, "+ {path}: {value:?}"),
            Self::Removed { path } => write!(f, "- {path}"),
            Self::Changed {
                path,
                before,
                after,
            } => write!(f, "~ {path}: {before:?} → {after:?}"),
        }
    }
}

/// The first differences between two documents, in document order: at most [`MAX_CHANGES`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(rename = "changes")]
    pub list: Vec<Change>,
    /// Whether there are more than [`Self::list`] holds.
    #[serde(default)]
    pub more: bool,
}

impl Changes {
    /// Adds a change, or breaks if the list is full.
    pub(crate) fn push(&mut self, change: Change) -> ControlFlow<()> {
        self.more = self.list.len() >= MAX_CHANGES;
        if self.more {
            return ControlFlow::Break(());
        }
        self.list.push(change);
        ControlFlow::Continue(())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The first changes on one line, and the number of others.
#[must_use]
pub fn summary(changes: &Changes) -> String {
    let shown = changes.list.iter().take(MAX_LOGGED_CHANGES);
    let mut line = shown
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    match changes.list.len().saturating_sub(MAX_LOGGED_CHANGES) {
        0 => {}
        rest if changes.more => line.push_str(&format!("; and more than {rest} more")),
        rest => line.push_str(&format!("; and {rest} more")),
    }
    line
}

/// A name or a value, cut to [`MAX_VALUE_CHARS`].
pub(super) fn truncated(value: &str) -> String {
    excerpt(value, MAX_VALUE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(count: usize) -> Changes {
        let mut changes = Changes::default();
        for n in 0..count {
            let _ = changes.push(Change::Removed {
                path: n.to_string(),
            });
        }
        changes
    }

    #[test]
    fn a_summary_says_how_many_more_changes_there_are() {
        let line = summary(&changes(MAX_LOGGED_CHANGES + 3));
        assert!(
            line.starts_with("- 0; - 1; ") && line.ends_with("- 19; and 3 more"),
            "{line}"
        );
        assert_eq!(summary(&changes(2)), "- 0; - 1");
        let line = summary(&changes(MAX_CHANGES + 3));
        assert!(line.ends_with("- 19; and more than 180 more"), "{line}");
    }
}
