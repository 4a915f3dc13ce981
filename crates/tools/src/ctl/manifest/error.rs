//! Why a manifest cannot be used.

/// What is wrong with a manifest, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It begins like JSON, but is not valid.
    #[error("invalid JSON")]
    Json(#[source] serde_json::Error),
    /// It is not YAML.
    #[error("invalid YAML")]
    Yaml(#[source] serde_saphyr::Error),
    /// None of the documents has a kind.
    #[error("kind: missing; a VirtualMachineInstance or a VirtualMachine is expected")]
    NoKind,
    /// Documents of other kinds only.
    #[error("kind: {0}: a VirtualMachineInstance or a VirtualMachine is expected")]
    OtherKinds(String),
    /// More than one VM in the file.
    #[error("it has {0} virtual machines; put each into its own file")]
    SeveralVms(usize),
    /// A VM without a VMI in it.
    #[error("spec.template: missing; a VirtualMachine needs one")]
    NoTemplate,
    /// The VMI has no name.
    #[error("metadata.name: missing")]
    NoName,
    /// The VMI's name is not one that Kubernetes takes.
    #[error(
        "metadata.name: {0:?} is not valid: at most 63 characters of a to z, 0 to 9, '-' and '.', with a letter or digit first and last"
    )]
    InvalidName(String),
    /// Nothing says how much memory the guest gets.
    #[error("spec.domain.memory.guest: missing; e.g. 512Mi")]
    NoMemory,
    /// A field has a value of the wrong type.
    #[error("{path}")]
    Field {
        /// Path of the field.
        path: String,
        /// What was expected.
        source: serde_json::Error,
    },
    /// The VMI is of another VM than the one that runs.
    #[error("metadata.{field}: {wanted:?}, but the VM that runs has {running:?}")]
    OtherVm {
        /// `name` or `namespace`.
        field: &'static str,
        /// As in the manifest.
        wanted: String,
        /// As sent before.
        running: String,
    },
}
