use std::path::Path;

use super::type_error::TypeError;
use super::yaml_error::YamlError;
use crate::error::CtlError;
use crate::files::InFile;
use api::vmi::QuantityError;

/// Limit of the shown problems. One more is searched for, to know whether there are more.
pub const MAX_PROBLEMS: usize = 100;

/// Why a manifest cannot be used, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It begins like JSON, but is invalid.
    #[error("invalid JSON")]
    Json(#[source] serde_json::Error),
    /// It is not YAML.
    #[error("invalid YAML")]
    Yaml(#[source] YamlError),
    /// It has no document.
    #[error("the file is empty; a VirtualMachineInstance or a VirtualMachine is expected")]
    Empty,
    /// None of the documents has a kind.
    #[error("kind: missing; a VirtualMachineInstance or a VirtualMachine is expected")]
    NoKind,
    /// Documents of other kinds only.
    #[error("kind: {0}: a VirtualMachineInstance or a VirtualMachine is expected")]
    OtherKinds(String),
    /// More than one VM in the file.
    #[error("it has {0} virtual machines; put each into its own file")]
    SeveralVms(usize),
    /// A VM without a VMI template.
    #[error("spec.template: missing; a VirtualMachine needs one")]
    NoTemplate,
    /// The VM takes CPU and memory from an instance type.
    #[error(
        "spec.instancetype: only a cluster has instance types; virtctl expand -f FILE prints the VM with what its instance type gives it"
    )]
    Instancetype,
    /// The VMI has no name.
    #[error("metadata.name: missing")]
    NoName,
    /// Kubernetes does not accept the VMI's name.
    #[error(
        "metadata.name: {0:?} is not valid: at most 63 characters of a to z, 0 to 9, '-' and '.', with a letter or digit first and last"
    )]
    InvalidName(String),
    /// KubeVirt does not support the guest's architecture.
    #[error("spec.architecture: {0:?} is not supported; {1}")]
    Architecture(String, String),
    /// Nothing sets the guest's memory.
    #[error("spec.domain.memory.guest: missing; e.g. 512Mi")]
    NoMemory,
    /// A field has a value of the wrong type.
    #[error("{0}")]
    Field(String, #[source] TypeError),
    /// The guest's memory, from which admission derives its request, is not a size.
    #[error("{0}")]
    Memory(String, #[source] QuantityError),
    /// The guest's memory is implausibly small.
    #[error("{path}: {message}")]
    TooLittleMemory {
        path: String,
        /// The size, and the one that was probably meant.
        message: String,
    },
    /// The manifest's namespace differs from `--namespace`.
    #[error(
        "metadata.namespace: {found:?}, but -n says {wanted:?}; leave out -n, or change the manifest"
    )]
    OtherNamespace {
        /// As in the manifest.
        found: String,
        /// As in the option.
        wanted: String,
    },
    /// The VMI belongs to another VM than the running one.
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

impl ManifestError {
    /// Path of the invalid field; empty for the whole manifest.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Json(_) | Self::Yaml(_) | Self::Empty | Self::SeveralVms(_) => "",
            Self::NoKind | Self::OtherKinds(_) => "kind",
            Self::NoTemplate => "spec.template",
            Self::Instancetype => "spec.instancetype",
            Self::OtherNamespace { .. } => "metadata.namespace",
            Self::NoName | Self::InvalidName(_) => "metadata.name",
            Self::Architecture(..) => "spec.architecture",
            Self::NoMemory => "spec.domain.memory.guest",
            Self::Field(path, _) | Self::Memory(path, _) | Self::TooLittleMemory { path, .. } => {
                path
            }
            Self::OtherVm { field, .. } => field,
        }
    }

    /// Whether `check` may find more: not in an empty file, and not for another VM or an option.
    #[must_use]
    pub fn may_be_one_of_several(&self) -> bool {
        !matches!(
            self,
            Self::Empty | Self::SeveralVms(_) | Self::OtherNamespace { .. } | Self::OtherVm { .. }
        )
    }

    /// What is wrong with the field, without its path.
    #[must_use]
    pub fn message(&self) -> String {
        let text = os::logging::chain(self);
        let field = format!("{}: ", self.field());
        text.strip_prefix(&field).unwrap_or(&text).to_owned()
    }
}

/// For `map_err` when reading a manifest.
pub fn in_manifest(file: &Path) -> impl FnOnce(ManifestError) -> CtlError {
    move |source| {
        let ends_with_first_problem = source.may_be_one_of_several();
        let error = CtlError::from(InFile::new(file, source));
        if ends_with_first_problem {
            error.with_remedy(all_problems(file))
        } else {
            error
        }
    }
}

/// For `map_err` when converting a manifest.
pub fn in_conversion(file: &Path) -> impl FnOnce(convert::ConvertError) -> CtlError {
    move |source| CtlError::from(InFile::new(file, source)).with_remedy(all_problems(file))
}

fn all_problems(file: &Path) -> String {
    format!(
        "launcherctl check {} shows all that is wrong",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_manifest_leads_to_the_verb_that_finds_all() {
        let refused = |file: &str, error| in_manifest(Path::new(file))(error).text();
        let text = refused("a.yaml", ManifestError::NoMemory);
        let hint = "\n  what to do: launcherctl check a.yaml shows all that is wrong";
        assert!(text.ends_with(hint), "{text}");
        let text = refused("-", ManifestError::NoName);
        assert!(
            text.ends_with("launcherctl check - shows all that is wrong"),
            "{text}"
        );
        assert!(!refused("a.yaml", ManifestError::Empty).contains("launcherctl check"));
        // check does not know the running VM.
        let other = ManifestError::OtherVm {
            field: "name",
            wanted: "a".to_owned(),
            running: "b".to_owned(),
        };
        assert!(!refused("a.yaml", other).contains("launcherctl check"));
    }
}
