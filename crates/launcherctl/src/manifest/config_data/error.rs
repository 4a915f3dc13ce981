use std::path::PathBuf;

use serde_json::Value;

use crate::files::FileError;
use crate::json::text_at;

/// Why a VM does not get its ConfigMaps and Secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigDataError {
    #[error(transparent)]
    File(#[from] FileError),
    /// The VMI refers to a missing one.
    #[error(
        "{field}: there is no {kind} {name:?}; put it beside the VM in its file, or give its files with --{option} {name}=DIR",
        option = kind.option()
    )]
    Missing {
        /// The VMI's field.
        field: String,
        kind: Kind,
        name: String,
    },
    /// An option's files are unreadable.
    #[error("--{option} {name}", option = kind.option())]
    Given {
        kind: Kind,
        name: String,
        source: FileError,
    },
    /// The VMI does not refer to an option's name.
    #[error(
        "--{option} {name}: the VMI refers to no {kind} {name:?}; it refers to {names}",
        option = kind.option()
    )]
    Unused {
        kind: Kind,
        name: String,
        /// Those of this kind that the VMI refers to, and the one that was probably meant.
        names: String,
    },
    /// A volume whose content only a cluster can write.
    #[error("{0}: only a cluster has {1}; take this volume and its disk out of the manifest")]
    OnlyInCluster(String, &'static str),
    /// It has none of cloud-init's keys.
    #[error("{field}: the Secret {name:?} has neither the key {} nor {}", keys[0], keys[1])]
    NoKey {
        /// The VMI's field.
        field: String,
        name: String,
        /// The possible keys.
        keys: [&'static str; 2],
    },
    /// A file name that Kubernetes does not accept.
    #[error("{kind} {name:?}: invalid key {key:?}: letters, digits, '-', '_' and '.'")]
    Key {
        kind: Kind,
        name: String,
        key: String,
    },
    /// A value that is not text.
    #[error("{kind} {name:?}: the value of {key:?} is not text; quote it")]
    NotText {
        kind: Kind,
        name: String,
        key: String,
    },
    /// Invalid Base64 in `data` of a Secret or `binaryData` of a ConfigMap.
    #[error("{kind} {name:?}: the value of {key:?} is not valid Base64; plain text belongs into {}", kind.plain_field())]
    Base64 {
        kind: Kind,
        name: String,
        key: String,
        source: base64::DecodeError,
    },
    /// Larger than Kubernetes accepts.
    #[error("{path} is larger than 1 MiB, the limit of Kubernetes", path = .0.display())]
    TooLarge(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    /// The kind of a manifest's document; `None` for others.
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
