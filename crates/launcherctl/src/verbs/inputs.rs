//! What a conversion starts from: a VMI, and the context that a pod would add, as files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::target::{read_manifest_text, warn_of_unknown_fields};
use crate::error::CtlError;
use crate::files::{InFile, read_text};
use crate::manifest::context::{assume_cpus, assumed_context, attach_interfaces};
use crate::manifest::options::Options;
use crate::manifest::{self, Origin, in_manifest};
use api::vmi::Vmi;
use convert::Context;

/// What a conversion starts from, as files.
#[derive(Debug, Args)]
pub struct Inputs {
    #[command(flatten)]
    vmi: VmiFile,
    /// What the pod adds, as JSON, to a VMI as its launcher got it; without it, a pod in which everything that the VMI needs is there
    #[arg(long)]
    pub context: Option<PathBuf>,
    /// Options that virt-handler would send with the VMI, as JSON
    #[arg(long)]
    pub options: Option<PathBuf>,
}

impl Inputs {
    /// The VMI's file.
    pub fn vmi(&self) -> &Path {
        self.vmi
            .given
            .as_deref()
            .or(self.vmi.named.as_deref())
            .unwrap_or(Path::new("-"))
    }

    /// Reads them: the VMI, also in the form that JSON has, and the context.
    ///
    /// # Errors
    /// If a file cannot be read, or is not such a document.
    pub fn read(&self) -> Result<(Value, Vmi, Context), CtlError> {
        self.read_text(&read_manifest_text(self.vmi())?)
    }

    /// As [`Self::read`], also where in the file each field of the VMI is.
    ///
    /// # Errors
    /// If a file cannot be read, or is not such a document.
    pub fn read_with_origin(&self) -> Result<(Value, Context, Origin), CtlError> {
        let text = read_manifest_text(self.vmi())?;
        let (value, _, context) = self.read_text(&text)?;
        Ok((value, context, Origin::of(&text)))
    }

    fn read_text(&self, text: &str) -> Result<(Value, Vmi, Context), CtlError> {
        warn_of_unknown_fields(self.vmi(), text);
        let (value, vmi) = manifest::read_offline(text, self.context.is_some())
            .map_err(in_manifest(self.vmi()))?;
        let context = read_context(&vmi, self.context.as_deref(), self.options.as_deref())?;
        Ok((value, vmi, context))
    }
}

/// The VMI, with or without an option's name: exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct VmiFile {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    #[arg(value_name = "VMI")]
    given: Option<PathBuf>,
    /// The same as VMI
    #[arg(long = "vmi", value_name = "FILE")]
    named: Option<PathBuf>,
}

/// Reads context and options; without a context, one is derived from the VMI.
fn read_context(
    vmi: &Vmi,
    context: Option<&Path>,
    options: Option<&Path>,
) -> Result<Context, CtlError> {
    let options = match options {
        Some(file) => Some(parse_json::<Options>(&read_text(file)?, file)?.into_message()),
        None => None,
    };
    let mut ctx = match context {
        Some(file) => parse_json(&read_text(file)?, file)?,
        None => assumed_context(vmi),
    };
    // A context may already contain the effect of options; explicit options override it.
    if options.is_some() || context.is_none() {
        pod::of_options(vmi, &options.unwrap_or_default(), &mut ctx);
    }
    if context.is_none() {
        attach_interfaces(vmi, &mut ctx);
        assume_cpus(vmi, &mut ctx);
    }
    Ok(ctx)
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str, file: &Path) -> Result<T, CtlError> {
    serde_json::from_str(text).map_err(|error| InFile::new(file, error).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VM: &str = "
kind: ConfigMap
---
kind: VirtualMachine
metadata: {name: web}
spec:
  template:
    spec:
      domain:
        memory: {guest: 256Mi}
        firmware: {bootloader: {efi: {}}}
        devices: {}
      volumes:
      - {name: root, containerDisk: {image: x}}
";

    #[test]
    fn a_vm_manifest_converts_as_in_a_cluster() {
        let (_, vmi) = manifest::read_offline(VM, false).unwrap();
        let xml = convert::domain(&vmi, &read_context(&vmi, None, None).unwrap())
            .unwrap()
            .to_xml();
        let parts = [
            "<name>default_web</name>",
            "OVMF_CODE.secboot.fd",
            r#"<interface type="ethernet">"#,
            r#"bus="sata" dev="sda""#,
        ];
        let missing: Vec<_> = parts.iter().filter(|part| !xml.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} {xml}");
    }
}
