//! `convert`: a conversion that needs neither a launcher nor libvirt.

use std::process::ExitCode;

use super::inputs::Inputs;
use crate::error::CtlError;
use crate::view::output::{Format, answer_document};

/// `convert`: prints the domain XML of a VMI; as JSON, an object that contains it.
///
/// # Errors
/// A file is invalid, or the VMI is refused.
pub fn convert(args: &Inputs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, _, vmi, context) = args.read()?;
    let xml = convert::domain(&vmi, &context)?.to_xml();
    answer_document(format, "domainXml", &xml)
}
