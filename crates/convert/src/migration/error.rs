//! Why the document for the target cannot be made.

use domain::xml::ReadError;

use crate::premigration::PreMigrationError;

/// Why the document cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The document cannot be read.
    #[error("the domain XML cannot be read")]
    Xml(#[source] ReadError),
    /// The target has dedicated CPUs, and has not said which.
    #[error(
        "the VMI has dedicated CPUs, and status.migrationState does not say which the target has"
    )]
    NoTargetCpus,
    /// The target's topology cannot be read.
    #[error("status.migrationState.targetNodeTopology cannot be read")]
    Topology(#[source] serde_json::Error),
    /// The VM does not fit on the target.
    #[error("the domain cannot be made to fit the target")]
    Target(#[from] PreMigrationError),
    /// A volume that moves has no size.
    #[error("the size of volume \"{0}\", which moves to another claim, is not known")]
    UnknownSize(String),
    /// A volume that moves has no file or device.
    #[error("the disk of volume \"{0}\", which moves to another claim, has no source")]
    NoSource(String),
}
