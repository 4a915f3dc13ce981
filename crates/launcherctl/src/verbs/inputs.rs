//! The files that verbs read: manifests, and contexts for a conversion without a launcher.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::error::CtlError;
use crate::files::{InFile, display_name, read_text};
use crate::manifest::cluster_only::{missing_devices, missing_interfaces};
use crate::manifest::context::context_of_pod;
use crate::manifest::{self, Manifest, in_manifest};
use crate::view::output::{Line, say};
use api::vmi::Vmi;
use convert::Context;

/// What a conversion starts from, as files.
#[derive(Debug, Args)]
pub struct Inputs {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    pub vmi: PathBuf,
    /// What the pod adds, as JSON, to a VMI as its launcher got it; without it, a pod in which
    /// everything that the VMI needs is there
    #[arg(long)]
    pub context: Option<PathBuf>,
}

/// Reads the files: the manifest's text, its VMI as JSON and typed, and the context.
///
/// # Errors
/// A file is unreadable or invalid.
pub fn read(
    file: &Path,
    context: Option<&Path>,
) -> Result<(String, Value, Vmi, Context), CtlError> {
    parse(file, read_text(file)?, context)
}

/// Like [`read`], of a text that the file has.
pub fn parse(
    file: &Path,
    text: String,
    context: Option<&Path>,
) -> Result<(String, Value, Vmi, Context), CtlError> {
    warn_of_unknown_fields(file, &text);
    let (value, vmi) =
        manifest::read_offline(&text, context.is_some()).map_err(in_manifest(file))?;
    let context = match context {
        Some(file) => {
            let text = read_text(file)?;
            api::json::from_slice(text.as_bytes()).map_err(|error| InFile::new(file, error))?
        }
        None => {
            let missing = missing_devices(&value).chain(missing_interfaces(&value));
            missing.for_each(|device| say(format!("note: {device}")));
            context_of_pod(&vmi)
        }
    };
    Ok((text, value, vmi, context))
}

/// Reads a manifest; `-` is standard input.
///
/// # Errors
/// The file is unreadable, or has no VM.
pub fn read_manifest(file: &Path) -> Result<Manifest, CtlError> {
    let text = read_text(file)?;
    warn_of_unknown_fields(file, &text);
    Manifest::parse(&text).map_err(in_manifest(file))
}

/// Prints on standard error which fields of a manifest are dropped.
pub fn warn_of_unknown_fields(file: &Path, text: &str) {
    for field in manifest::unknown_fields(text) {
        say(Line::Problem(format!(
            "warning: {}:{field}",
            display_name(file)
        )));
    }
}
