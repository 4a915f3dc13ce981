//! Why a VM does not get its ConfigMaps and Secrets.

use std::path::PathBuf;

use serde_json::Value;

use crate::files::FileError;
use crate::json::text_at;

/// What is missing, or wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigDataError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The VMI refers to one that is not there.
    #[error(
        "{field}: there is no {kind} {name:?}; put it beside the VM in its file, or give its files with --{option} {name}=DIR",
        option = kind.option()
    )]
    Missing {
        /// Where the VMI refers to it.
        field: String,
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The files of an option cannot be read.
    #[error("--{option} {name}", option = kind.option())]
    Given {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// Why not.
        source: FileError,
    },
    /// An option with a name that the VMI does not refer to.
    #[error(
        "--{option} {name}: the VMI refers to no {kind} {name:?}; it refers to {names}",
        option = kind.option()
    )]
    Unused {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// Those of this kind that the VMI refers to, and the one that was probably meant.
        names: String,
    },
    /// A volume with what a cluster writes into the pod.
    #[error("{0}: only a cluster has {1}; take this volume and its disk out of the manifest")]
    OnlyInCluster(String, &'static str),
    /// It has none of the keys that cloud-init's data has.
    #[error("{field}: the Secret {name:?} has neither the key {} nor {}", keys[0], keys[1])]
    NoKey {
        /// Where the VMI refers to it.
        field: String,
        /// The Secret's name.
        name: String,
        /// What the key may be called.
        keys: [&'static str; 2],
    },
    /// A name of a file that Kubernetes would not take.
    #[error("{kind} {name:?}: invalid key {key:?}: letters, digits, '-', '_' and '.'")]
    Key {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A value that is not text.
    #[error("{kind} {name:?}: the value of {key:?} is not text; quote it")]
    NotText {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// `data` of a Secret, `binaryData` of a ConfigMap.
    #[error("{kind} {name:?}: the value of {key:?} is not valid Base64; plain text belongs into {}", kind.plain_field())]
    Base64 {
        /// What it is.
        kind: Kind,
        /// Its name.
        name: String,
        /// The key.
        key: String,
        /// Why not.
        source: base64::DecodeError,
    },
    /// More than Kubernetes takes.
    #[error("{path} is larger than 1 MiB, the limit of Kubernetes", path = .0.display())]
    TooLarge(PathBuf),
}

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Kind {
    /// Of a document of a manifest; none of another kind.
    #[must_use]
    pub fn of_document(document: &Value) -> Option<Self> {
        match text_at(document, "/kind") {
            "ConfigMap" => Some(Self::ConfigMap),
            "Secret" => Some(Self::Secret),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    pub(super) fn option(self) -> &'static str {
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

    fn plain_field(self) -> &'static str {
        self.fields().0
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
