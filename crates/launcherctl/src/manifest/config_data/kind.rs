use serde_json::Value;

use crate::json::text_at;
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    /// The kind of a manifest's document; `None` for others.
    pub fn of_document(document: &Value) -> Option<Self> {
        match text_at(document, "/kind") {
            "ConfigMap" => Some(Self::ConfigMap),
            "Secret" => Some(Self::Secret),
            _ => None,
        }
    }

    /// The option of `run` that gives its files.
    pub fn option(self) -> &'static str {
        match self {
            Self::ConfigMap => "config-map",
            Self::Secret => "secret",
        }
    }

    /// The fields with text, and with Base64.
    pub(super) fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("data", "binaryData"),
            Self::Secret => ("stringData", "data"),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}
