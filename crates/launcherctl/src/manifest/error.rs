use std::error::Error;
use std::path::Path;

use super::yaml_error::YamlError;
use crate::error::CtlError;
use crate::files::InFile;

/// Limit of the shown problems. One more is searched for, to know whether there are more.
pub const MAX_PROBLEMS: usize = 100;

/// Why a manifest cannot be used, and where.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not YAML.
    #[error("invalid YAML")]
    Yaml(#[from] YamlError),
    /// It is JSON of too many values.
    #[error("invalid JSON")]
    Json(#[source] serde_json::Error),
    /// The file is empty, or has several VMs.
    #[error("{0}")]
    File(String),
    /// A field is missing or wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A field does not fit the command line, or the VM that runs.
    #[error("{0}")]
    OtherVm(FieldError),
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Its path, such as `spec.volumes[0].name`.
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// For `map_err` when reading a manifest.
pub fn in_manifest(file: &Path) -> impl FnOnce(ManifestError) -> CtlError {
    move |source| match source {
        ManifestError::Field(_) => first_problem(file, source),
        _ => InFile::new(file, source).into(),
    }
}

/// For `map_err` when converting a manifest.
pub fn in_conversion(file: &Path) -> impl FnOnce(convert::ConvertError) -> CtlError {
    move |source| first_problem(file, source)
}

/// The first problem of a manifest, and how to see all.
fn first_problem(file: &Path, source: impl Error + Send + Sync + 'static) -> CtlError {
    let remedy = format!(
        "launcherctl check {} shows all that is wrong",
        file.display()
    );
    CtlError::from(InFile::new(file, source)).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_manifest_leads_to_the_verb_that_finds_all() {
        let refused = |file: &str, error: ManifestError| in_manifest(Path::new(file))(error).text();
        let text = refused("a.yaml", FieldError::new("spec", "missing").into());
        let hint = "\n  what to do: launcherctl check a.yaml shows all that is wrong";
        assert!(text.ends_with(hint), "{text}");
        let text = refused("-", FieldError::new("spec", "missing").into());
        assert!(
            text.ends_with("launcherctl check - shows all that is wrong"),
            "{text}"
        );
        assert!(
            !refused("a.yaml", ManifestError::File("it is empty".to_owned()))
                .contains("launcherctl check")
        );
        let other = ManifestError::OtherVm(FieldError::new("metadata.name", "another VM runs"));
        assert!(!refused("a.yaml", other).contains("launcherctl check"));
    }
}
