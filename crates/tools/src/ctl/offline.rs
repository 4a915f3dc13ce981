//! Verbs that need neither a launcher nor libvirt: files in, text out.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::options::Options;
use super::{CtlError, manifest};
use api::vmi::Vmi;
use convert::context::DiskInfo;
use convert::{self, Context};
use domain::Domain;
use domain::Text;

/// `convert`: prints the domain XML of a VMI.
///
/// # Errors
/// If a file is no such document, or the VMI is refused.
pub fn convert(args: &Inputs) -> Result<ExitCode, CtlError> {
    let (_, vmi, context) = args.read()?;
    put(&convert::domain(&vmi, &context)?.to_xml())?;
    Ok(ExitCode::SUCCESS)
}

/// `domain-json`: domain XML on standard input, Domain JSON on standard output.
///
/// # Errors
/// If the input is no domain XML.
pub fn domain_json() -> Result<ExitCode, CtlError> {
    let spec = super::plan::read_domain(Path::new("-"))?;
    let document = Domain {
        spec,
        ..Domain::default()
    };
    let json = serde_json::to_string(&document)
        .map_err(|e| CtlError::file("write", "standard output")(e.into()))?;
    put(&(json + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
fn put(text: &str) -> Result<(), CtlError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CtlError::file("write", "standard output")),
    }
}

/// Reads a file as UTF-8 text; `-` is standard input.
///
/// # Errors
/// If it cannot be read.
pub fn read_text(file: &Path) -> Result<String, CtlError> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file).map_err(CtlError::file("read", file));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(CtlError::file("read", "standard input"))?;
    Ok(text)
}

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
    /// If a file is no such document.
    pub fn read(&self) -> Result<(Value, Vmi, Context), CtlError> {
        let text = read_text(self.vmi())?;
        let (value, vmi) = manifest::offline(&text, self.context.is_some())
            .map_err(|reason| CtlError::manifest(self.vmi(), reason))?;
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

/// Reads context and options; where no context is given, makes one out of the VMI.
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
        None => assumed(vmi),
    };
    // A context may stand for the options too; what is given last counts.
    if options.is_some() || context.is_none() {
        pod::of_options(vmi, &options.unwrap_or_default(), &mut ctx);
    }
    if context.is_none() {
        attach_interfaces(vmi, &mut ctx);
    }
    Ok(ctx)
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str, file: &Path) -> Result<T, CtlError> {
    serde_json::from_str(text).map_err(|e| CtlError::manifest(file, e))
}

/// Every container disk holds an ordinary qcow2 image.
fn container_images(vmi: &Vmi) -> BTreeMap<Text, DiskInfo> {
    let volumes = vmi
        .spec
        .volumes
        .iter()
        .filter(|volume| volume.container_disk.is_some());
    volumes
        .map(|volume| {
            (
                volume.name.clone(),
                DiskInfo {
                    format: "qcow2".into(),
                    ..DiskInfo::default()
                },
            )
        })
        .collect()
}

/// The node agent makes a tap device for each interface of these kinds, unless the options say otherwise.
fn attach_interfaces(vmi: &Vmi, ctx: &mut Context) {
    let tapped = vmi
        .spec
        .domain
        .devices
        .interfaces
        .iter()
        .filter(|interface| interface.bridge.is_some() || interface.masquerade.is_some());
    for interface in tapped {
        ctx.domain_attachment_by_interface_name
            .entry(interface.name.clone())
            .or_insert_with(|| "tap".into());
    }
}

/// The context of a pod in which everything is as the VMI expects it.
fn assumed(vmi: &Vmi) -> Context {
    let architecture = if vmi.spec.architecture.is_empty() {
        manifest::host_architecture().into()
    } else {
        vmi.spec.architecture.clone()
    };
    let (hotplug, permanent) = vmi
        .status
        .volume_status
        .iter()
        .cloned()
        .partition::<Vec<_>, _>(|status| status.hotplug_volume.is_some());
    let by_name = |list: Vec<api::vmi::status::VolumeStatus>| {
        list.into_iter()
            .map(|status| (status.name.clone(), status))
            .collect()
    };
    let mut ctx = Context {
        host_architecture: architecture.clone(),
        architecture: architecture.clone(),
        hypervisor_name: "kvm".into(),
        hypervisor_device_available: true,
        hotplug_volumes: by_name(hotplug),
        permanent_volumes: by_name(permanent),
        disks_info: container_images(vmi),
        efi_configuration: pod::firmware::in_kubevirts_image(vmi, &architecture),
        ..Context::default()
    };
    pod::of_vmi(vmi, &mut ctx);
    ctx
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
        let (_, vmi) = manifest::offline(VM, false).unwrap();
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
