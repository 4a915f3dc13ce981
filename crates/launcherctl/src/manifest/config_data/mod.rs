//! ConfigMaps and Secrets as files: from documents beside the VM, or from directories.

mod files;
mod kind;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

pub use files::{document_problems, of_document, of_path, write};
pub use kind::Kind;

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

/// The files of a ConfigMap or Secret, by key.
pub type Files = BTreeMap<String, Vec<u8>>;

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
            _ => Err("expected NAME=DIR"),
        }
    }
}
