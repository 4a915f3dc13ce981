//! `convert`: a conversion that needs neither a launcher nor libvirt.

use std::process::ExitCode;

use serde_json::json;

use super::inputs::{Inputs, read};
use crate::error::CtlError;
use crate::view::output::{Format, answer_document};
use domain::xml::tree::Element;

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
