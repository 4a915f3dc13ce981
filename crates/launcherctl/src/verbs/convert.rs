//! `convert`: a conversion that needs neither a launcher nor libvirt.

use std::process::ExitCode;

use serde_json::json;

use super::inputs::Inputs;
use crate::error::CtlError;
use crate::view::output::{Format, print, print_document};

/// `convert`: prints the domain XML of a VMI; as JSON, an object that holds it.
///
/// # Errors
/// If a file is not what it should be, or the VMI is refused.
pub fn convert(args: &Inputs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, vmi, context) = args.read()?;
    let xml = convert::domain(&vmi, &context)?.to_xml();
    match format {
        Format::Text => print_document(&xml)?,
        Format::Json => print(format, &json!({"domainXml": xml}), String::new),
    }
    Ok(ExitCode::SUCCESS)
}
