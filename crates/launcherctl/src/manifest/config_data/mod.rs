//! ConfigMaps and Secrets as files: from documents beside the VM, or from directories.

mod files;
mod references;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value;

use crate::json::text_at;

pub use files::{document_problems, of_document, of_path, write};
pub use references::{Reference, references};

/// The kinds of volumes whose images the launcher makes at each start.
pub const GENERATED: [&str; 7] = [
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "configMap",
    "secret",
    "downwardAPI",
    "serviceAccount",
    "sysprep",
];

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigKind {
    ConfigMap,
    Secret,
}

impl ConfigKind {
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
    fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("data", "binaryData"),
            Self::Secret => ("stringData", "data"),
        }
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// The files of a ConfigMap or Secret, by key.
pub type Files = BTreeMap<String, Vec<u8>>;

/// ConfigMaps and Secrets by their names.
pub type ConfigData = BTreeMap<(ConfigKind, String), Files>;

/// One of them.
pub type NamedFiles = ((ConfigKind, String), Files);

/// `NAME=PATH` of an option.
#[derive(Debug, Clone)]
pub struct NamedPath {
    pub name: String,
    pub path: PathBuf,
}

impl FromStr for NamedPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(Self {
                name: name.to_owned(),
                path: path.into(),
            }),
            _ => Err("expected NAME=PATH"),
        }
    }
}
