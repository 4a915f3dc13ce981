use std::path::Path;

use super::yaml_error::YamlError;
use crate::error::CtlError;
use crate::files::InFile;

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
    Yaml(#[from] YamlError),
    /// The file is empty, or has several VMs.
    #[error("{0}")]
    File(String),
    /// A field is missing or wrong.
    #[error("{field}: {message}")]
    Field { field: String, message: String },
    /// A field does not fit the command line, or the VM that runs.
    #[error("{field}: {message}")]
    OtherVm { field: String, message: String },
}

impl ManifestError {
    pub fn in_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            message: message.into(),
        }
    }

    /// Path of the invalid field; empty for the whole manifest.
    pub fn field(&self) -> &str {
        match self {
            Self::Field { field, .. } | Self::OtherVm { field, .. } => field,
            _ => "",
        }
    }

    /// What is wrong with the field, without its path.
    pub fn message(&self) -> String {
        match self {
            Self::Field { message, .. } | Self::OtherVm { message, .. } => message.clone(),
            _ => os::logging::chain(self),
        }
    }
}

/// For `map_err` when reading a manifest.
pub fn in_manifest(file: &Path) -> impl FnOnce(ManifestError) -> CtlError {
    move |source| {
        // check does not know the running VM.
        let is_all = matches!(
            source,
            ManifestError::File(_) | ManifestError::OtherVm { .. }
        );
        let error = CtlError::from(InFile::new(file, source));
        if is_all {
            error
        } else {
            error.with_remedy(all_problems(file))
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
        let text = refused("a.yaml", ManifestError::in_field("kind", "missing"));
        let hint = "\n  what to do: launcherctl check a.yaml shows all that is wrong";
        assert!(text.ends_with(hint), "{text}");
        let text = refused("-", ManifestError::in_field("kind", "missing"));
        assert!(
            text.ends_with("launcherctl check - shows all that is wrong"),
            "{text}"
        );
        assert!(
            !refused("a.yaml", ManifestError::File("it is empty".to_owned()))
                .contains("launcherctl check")
        );
        let other = ManifestError::OtherVm {
            field: "metadata.name".to_owned(),
            message: "another VM runs".to_owned(),
        };
        assert!(!refused("a.yaml", other).contains("launcherctl check"));
    }
}
