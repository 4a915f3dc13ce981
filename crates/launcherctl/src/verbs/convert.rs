//! `convert` and `domain-json`: conversions that need neither a launcher nor libvirt.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::inputs::Inputs;
use crate::error::CtlError;
use crate::files::{FileError, InFile, read_text};
use crate::view::output::{Format, print, print_document};
use domain::{Domain, DomainSpec};

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

/// `domain-json`: domain XML on standard input, Domain JSON on standard output.
///
/// # Errors
/// If the input is not domain XML.
pub fn domain_json() -> Result<ExitCode, CtlError> {
    let spec = read_domain(Path::new("-"))?;
    let document = Domain {
        spec,
        ..Domain::default()
    };
    let json = serde_json::to_string(&document)
        .map_err(|error| FileError::on("write", "standard output")(error.into()))?;
    print_document(&(json + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads domain XML from a file; `-` is standard input.
///
/// # Errors
/// If it cannot be read or is not domain XML.
pub fn read_domain(file: &Path) -> Result<DomainSpec, CtlError> {
    DomainSpec::from_xml(&read_text(file)?).map_err(|error| InFile::new(file, error).into())
}
