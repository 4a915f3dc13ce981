//! `convert`: a conversion that needs neither a launcher nor libvirt, and its input files: a VMI,
//! and the context that a pod would add.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::target::warn_of_unknown_fields;
use crate::error::CtlError;
use crate::files::{InFile, read_text};
use crate::manifest::cluster_only::{missing_devices, missing_interfaces};
use crate::manifest::context::context_of_pod;
use crate::manifest::{self, in_manifest};
use crate::view::output::{Format, answer_document, say};
use api::vmi::Vmi;
use convert::Context;
use domain::xml::tree::Element;

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

/// `convert`: prints the domain XML of a VMI; as JSON, an object that contains it.
///
/// # Errors
/// A file is invalid, or the VMI is refused.
pub fn convert(args: &Inputs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, _, vmi, context) = read(&args.vmi, args.context.as_deref())?;
    let xml = convert::domain(&vmi, &context)?.to_xml();
    // As a sidecar gets it, so that its author sees what to match.
    let xml = Element::parse(&xml).map_or(xml, |tree| tree.to_xml());
    answer_document(format, &json!({"domainXml": xml}), &format!("{xml}\n"))
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
